#include "executor/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace atl::executor {
namespace {

Error not_a(std::string_view what, std::string_view text, std::string_view examples) {
  return make_error(Errc::invalid_argument, "not a " + std::string(what) + ": '" +
                                                std::string(text) + "' (" + std::string(examples) +
                                                ")");
}

// Takes the number at the beginning of the text off it.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(std::size_t(stop - text.data()));
  return value;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return out;
}

}  // namespace

Result<std::chrono::milliseconds> parse_time(std::string_view text) {
  const Error wrong = not_a("length of time", text, "10s, 90s, 2m, 1m30s; from 1s to 1h");
  std::string_view rest = text;
  std::uint64_t seconds = 0;
  std::uint64_t before = 0;  // the unit before this one: they go down
  do {
    const auto number = take_number(rest);
    if (!number || *number > 1'000'000) return wrong;
    std::uint64_t unit = 1;
    if (!rest.empty()) {
      unit = rest.front() == 'h' ? 3600 : rest.front() == 'm' ? 60 : rest.front() == 's' ? 1 : 0;
      rest.remove_prefix(1);
    } else if (before != 0) {
      return wrong;  // "1m30"
    }
    if (unit == 0 || (before != 0 && unit >= before)) return wrong;
    before = unit;
    seconds += *number * unit;
  } while (!rest.empty());
  const std::chrono::milliseconds out = std::chrono::seconds(seconds);
  if (out < kLeastTime || out > kMostTime) return wrong;
  return out;
}

Result<std::uint64_t> parse_memory(std::string_view text) {
  const Error wrong = not_a("size of memory", text, "256m, 1g; from 64m to 1024g");
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (!number) return wrong;
  const std::string unit = lower(rest);
  unsigned shift = 0;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = std::string_view("kmgt").find(unit.front());
    if (power == std::string_view::npos) return wrong;
    if (unit.size() > 1 && unit.substr(1) != "b" && unit.substr(1) != "ib") return wrong;
    shift = 10 * unsigned(power + 1);
  }
  if (*number > (kMostMemory >> shift)) return wrong;
  const std::uint64_t out = *number << shift;
  if (out < kLeastMemory) return wrong;
  return out;
}

Result<std::optional<Rate>> parse_rate(std::string_view text) {
  if (text.empty() || text == "off") return std::optional<Rate>();
  const Error wrong = not_a("rate", text, "5/s, 100/m, or off");
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (!number || *number == 0 || *number > 1'000'000) return wrong;
  Rate rate;
  rate.count = std::uint32_t(*number);
  if (rest == "/s" || rest == "/second") return std::optional(rate);
  rate.per = std::chrono::seconds(60);
  if (rest == "/m" || rest == "/minute") return std::optional(rate);
  return wrong;
}

}  // namespace atl::executor
