#include "agent/interpreter/lines.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

namespace atl::agent::interpreter {
namespace {

constexpr std::size_t kMembersOfLine = 64;
constexpr std::size_t kReadSize = 64 << 10;
constexpr std::size_t kKeptCapacity = 1 << 20;

LineType type_of(std::string_view type) {
  if (type == "\"stdout\"" || type == "\"stderr\"") return LineType::output;
  if (type == "\"result\"") return LineType::result;
  if (type == "\"started\"") return LineType::started;
  if (type == "\"done\"") return LineType::done;
  if (type == "\"error\"") return LineType::error;
  if (type == "\"ready\"") return LineType::ready;
  if (type == "\"warmed\"") return LineType::warmed;
  return LineType::invalid;
}

// 2026-11-16T00:26:58.368359+00:00
std::string timestamp_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = std::time_t(micros / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     micros % 1'000'000);
}

struct Character {
  std::uint32_t code = 0xFFFD;
  std::size_t size = 1;     // bytes used
  bool incomplete = false;  // more bytes could make it whole
};

Character read_character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {lead, 1, false};
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  std::uint32_t code = lead & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {0xFFFD, i, true};
    if ((at(i) & 0xC0U) != 0x80) return {0xFFFD, i, false};
    code = (code << 6) | (at(i) & 0x3FU);
    const bool low_lead =
        i == 1 && ((lead == 0xE0 && at(1) < 0xA0) || (lead == 0xF0 && at(1) < 0x90));
    const bool high_lead =
        i == 1 && ((lead == 0xED && at(1) > 0x9F) || (lead == 0xF4 && at(1) > 0x8F));
    if (low_lead || high_lead) return {};
  }
  return {code, size, false};
}

void append_unit(std::string& out, unsigned unit) {
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", unit & 0xFFFFU);
  out += text;
}

}  // namespace

RunnerLine read_line(std::string_view line, JsonMembers& scratch) {
  RunnerLine out;
  if (scan_object(line, JsonForm::line, kMembersOfLine, scratch) != JsonFault::none) return out;
  out.type = type_of(find_member(scratch, "type"));
  if (out.type == LineType::started) {
    const std::string_view count = find_member(scratch, "execution_count");
    const auto [end, ec] =
        std::from_chars(count.data(), count.data() + count.size(), out.execution_count);
    if (count.empty() || ec != std::errc() || end != count.data() + count.size())
      out.type = LineType::invalid;
  } else if (out.type == LineType::done) {
    out.restart = find_member(scratch, "restart") == "true";
  }
  return out;
}

std::string json_quote(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size() + 2);
  out += '"';
  while (!utf8.empty()) {
    const char c = utf8.front();
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
      utf8.remove_prefix(1);
    } else if (c == '\n') {
      out += "\\n";
      utf8.remove_prefix(1);
    } else if (c >= 0x20 && c < 0x7F) {
      out += c;
      utf8.remove_prefix(1);
    } else {
      const Character character = read_character(utf8);
      if (character.code >= 0x10000) {
        append_unit(out, 0xD800 + ((character.code - 0x10000) >> 10));
        append_unit(out, 0xDC00 + ((character.code - 0x10000) & 0x3FF));
      } else {
        append_unit(out, character.code);
      }
      utf8.remove_prefix(character.size);
    }
  }
  out += '"';
  return out;
}

std::string count_line(std::int64_t execution_count) {
  return fmt::format("{{\"type\": \"number_of_executions\", \"execution_count\": {}}}\n",
                     execution_count);
}

std::string output_line(Output output, std::string_view text) {
  return fmt::format("{{\"type\": \"{}\", \"text\": {}, \"timestamp\": \"{}\"}}\n",
                     output == Output::out ? "stdout" : "stderr", json_quote(text),
                     timestamp_now());
}

std::string error_line(std::string_view name, std::string_view value) {
  return fmt::format("{{\"type\": \"error\", \"name\": {}, \"value\": {}, \"traceback\": \"\"}}\n",
                     json_quote(name), json_quote(value));
}

std::string start_line(const std::vector<std::string>& env, std::string_view cwd) {
  std::string out = R"({"op":"start","env":{)";
  bool first = true;
  for (const std::string& variable : env) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    if (!first) out += ',';
    first = false;
    out += json_quote(std::string_view(variable).substr(0, equals));
    out += ':';
    out += json_quote(std::string_view(variable).substr(equals + 1));
  }
  out += "},\"cwd\":" + json_quote(cwd) + "}\n";
  return out;
}

std::string forked_line(std::string_view seed, const std::map<std::string, std::string>& env) {
  std::string out = R"({"op":"forked","seed":)" + json_quote(seed) + R"(,"env":{)";
  bool first = true;
  for (const auto& [name, value] : env) {
    if (!first) out += ',';
    first = false;
    out += json_quote(name) + ":" + json_quote(value);
  }
  return out + "}}\n";
}

std::string TextJoin::add(std::string_view bytes) {
  std::string text = std::move(rest_);
  rest_.clear();
  text += bytes;
  // Only the last three bytes can be the beginning of something longer.
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (read_character(std::string_view(text).substr(at)).incomplete) {
      rest_ = text.substr(at);
      text.resize(at);
    }
    break;
  }
  return text;
}

std::span<char> LineBuffer::space() {
  if (begin_ > 0) {
    std::memmove(data_.data(), data_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    looked_ -= begin_;
    begin_ = 0;
  }
  if (end_ == 0 && data_.size() > kKeptCapacity) {
    data_.clear();
    data_.shrink_to_fit();
  }
  if (data_.size() - end_ < kReadSize) data_.resize(std::max(data_.size() * 2, kReadSize));
  return {data_.data() + end_, data_.size() - end_};
}

void LineBuffer::added(std::size_t count) { end_ += count; }

bool LineBuffer::next(Line& line) {
  for (;;) {
    const void* found =
        looked_ == end_ ? nullptr : std::memchr(data_.data() + looked_, '\n', end_ - looked_);
    if (found == nullptr) {
      looked_ = end_;
      const bool grown = end_ - begin_ > kMaxLine;
      if (grown || skipping_) begin_ = looked_ = end_ = 0;
      if (!grown || skipping_) return false;
      skipping_ = true;
      line = {{}, true};
      return true;
    }
    const std::size_t stop = std::size_t(static_cast<const char*>(found) - data_.data());
    const std::string_view text(data_.data() + begin_, stop - begin_);
    begin_ = looked_ = stop + 1;
    if (std::exchange(skipping_, false)) continue;  // the end of a line that was told already
    line = {text.size() > kMaxLine ? std::string_view() : text, text.size() > kMaxLine};
    return true;
  }
}

}  // namespace atl::agent::interpreter
