// Log lines go to stderr: plain text on a terminal, one JSON object per line otherwise (or when
// asked).
//
// Log an error once, where it is handled. Fields are for machines ("sandbox", id), the message is
// for people.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace atl::log {

enum class Level { debug, info, warn, error };
enum class Format { text, json };

using Fields = std::initializer_list<std::pair<std::string_view, std::string_view>>;

void configure(Level least, Format format);
void write(Level level, std::string_view message, Fields fields = {});

inline void debug(std::string_view message, Fields fields = {}) {
  write(Level::debug, message, fields);
}
inline void info(std::string_view message, Fields fields = {}) {
  write(Level::info, message, fields);
}
inline void warn(std::string_view message, Fields fields = {}) {
  write(Level::warn, message, fields);
}
inline void error(std::string_view message, Fields fields = {}) {
  write(Level::error, message, fields);
}

}  // namespace atl::log
