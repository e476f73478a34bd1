#include "agent/log_ring.h"

#include <fmt/format.h>

#include <ctime>

namespace atl::agent {
namespace {

constexpr std::size_t kEntryCost = 96;  // of an entry beside its text

const char* name_of(LogRing::Level level) {
  switch (level) {
    case LogRing::Level::info:
      return "info";
    case LogRing::Level::warn:
      return "warn";
    case LogRing::Level::error:
      break;
  }
  return "error";
}

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since).count();
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(since).count() - seconds * 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     millis);
}

// Length of the well-formed UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned least, unsigned most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned least = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned most = first == 0xED ? 0x9F : 0xBF;
    return follows(1, least, most) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned least = first == 0xF0 ? 0x90 : 0x80;
    const unsigned most = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, least, most) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view piece = length > 0 ? text.substr(0, length) : kReplacement;
    if (out.size() + piece.size() > limit) break;
    out += piece;
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

std::size_t LogRing::Entry::bytes() const {
  std::size_t total = kEntryCost + message.size();
  for (const auto& [name, value] : fields) total += name.size() + value.size() + kEntryCost;
  return total;
}

void LogRing::add(Level level, std::string_view message, LogFields fields) {
  for (auto& [name, value] : fields) value = printable(value, kLogField);
  entries_.push_back({next_++, std::chrono::system_clock::now(), level,
                      printable(message, kLogMessage), std::move(fields)});
  bytes_ += entries_.back().bytes();
  while (entries_.size() > kLogEntries || (bytes_ > kLogBytes && entries_.size() > 1)) {
    bytes_ -= entries_.front().bytes();
    entries_.pop_front();
  }
}

json::object LogRing::after(std::uint64_t seq) const {
  json::array list;
  // Nothing was skipped if the page is empty: the next one is the one that follows `seq`, or the
  // first of this boot if the caller counts by another one.
  std::uint64_t next = next_;
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) {
    if (entry.seq <= seq) continue;
    if (list.size() == kLogPage || bytes + entry.bytes() > kLogPageBytes) {
      next = entry.seq;
      break;
    }
    bytes += entry.bytes();
    json::object fields;
    for (const auto& [name, value] : entry.fields) fields[name] = value;
    json::object out;
    out["seq"] = entry.seq;
    out["timestamp"] = rfc3339(entry.time);
    out["level"] = name_of(entry.level);
    out["message"] = entry.message;
    out["fields"] = std::move(fields);
    list.push_back(std::move(out));
  }
  json::object answer;
  answer["entries"] = std::move(list);
  answer["next"] = next;
  return answer;
}

}  // namespace atl::agent
