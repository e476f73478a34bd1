#include "store/timestamp.h"

#include <fmt/format.h>

namespace atl {
namespace {

// Reads exactly `digits` digits off the front.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// ".123" as nanoseconds; nothing there is zero.
std::optional<std::chrono::nanoseconds> take_fraction(std::string_view& text) {
  if (!take(text, ".,")) return std::chrono::nanoseconds(0);
  std::int64_t ns = 0;
  std::size_t digits = 0;
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9';
       text.remove_prefix(1), ++digits) {
    if (digits < 9) ns = ns * 10 + (text.front() - '0');
  }
  if (digits == 0) return std::nullopt;
  for (; digits < 9; ++digits) ns *= 10;
  return std::chrono::nanoseconds(ns);
}

std::optional<std::chrono::minutes> take_offset(std::string_view& text) {
  if (take(text, "Zz")) return std::chrono::minutes(0);
  if (text.empty() || (text.front() != '+' && text.front() != '-')) return std::nullopt;
  const int sign = text.front() == '-' ? -1 : 1;
  text.remove_prefix(1);
  const auto hours = take_number(text, 2);
  if (!hours || !take(text, ":")) return std::nullopt;
  const auto minutes = take_number(text, 2);
  if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  return std::chrono::minutes(sign * (*hours * 60 + *minutes));
}

}  // namespace

Timestamp now() { return cut_to_micros(std::chrono::system_clock::now()); }

std::string to_rfc3339(Timestamp t) {
  const auto day = std::chrono::floor<std::chrono::days>(t);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::microseconds>(t - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", int(date.year()),
                     unsigned(date.month()), unsigned(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count(), time.subseconds().count());
}

std::optional<Timestamp> parse_rfc3339(std::string_view text) {
  const auto year = take_number(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day || !take(text, "Tt ")) return std::nullopt;
  const auto hour = take_number(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_number(text, 2);
  if (!minute || !take(text, ":")) return std::nullopt;
  const auto second = take_number(text, 2);
  const auto fraction = take_fraction(text);
  if (!second || !fraction) return std::nullopt;
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;

  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(unsigned(*month)),
                                         std::chrono::day(unsigned(*day))};
  if (*year < 1970 || *year > 2200 || !date.ok() || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  return Timestamp(std::chrono::sys_days(date)) + std::chrono::hours(*hour) +
         std::chrono::minutes(*minute) + std::chrono::seconds(*second) + *fraction - *offset;
}

}  // namespace atl
