#include "cli/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace atl::cli {
namespace {

// Columns on a terminal: bytes that begin a character of UTF-8.
std::size_t width(std::string_view text) {
  return std::size_t(std::count_if(text.begin(), text.end(),
                                   [](char c) { return (std::uint8_t(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table::aligned() const {
  std::vector<std::size_t> widths(heading_.size());
  const auto measure = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < widths.size() && i < row.size(); ++i)
      widths[i] = std::max(widths[i], width(row[i]));
  };
  measure(heading_);
  for (const auto& row : rows_) measure(row);
  std::string out;
  const auto put = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < widths.size() && i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < widths.size()) line.append(widths[i] - width(row[i]) + 2, ' ');
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  };
  put(heading_);
  for (const auto& row : rows_) put(row);
  return out;
}

std::string Table::plain() const {
  std::string out;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) out += (i == 0 ? "" : "\t") + row[i];
    out += '\n';
  }
  return out;
}

void Table::print() const {
  const std::string text = ::isatty(STDOUT_FILENO) ? aligned() : plain();
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > 1'000'000'000) return std::nullopt;
  const std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  if (unit.empty() || unit == "s") return std::chrono::seconds(value);
  if (unit == "m") return std::chrono::minutes(value);
  if (unit == "h") return std::chrono::hours(value);
  if (unit == "d") return std::chrono::hours(24) * value;
  return std::nullopt;
}

std::string show_duration(std::chrono::seconds duration) {
  std::int64_t s = duration.count();
  const std::string sign = s < 0 ? "-" : "";
  s = s < 0 ? -s : s;
  if (s < 60) return fmt::format("{}{}s", sign, s);
  if (s < 3600) return fmt::format("{}{}m {}s", sign, s / 60, s % 60);
  if (s < 86400) return fmt::format("{}{}h {}m", sign, s / 3600, s % 3600 / 60);
  return fmt::format("{}{}d {}h", sign, s / 86400, s % 86400 / 3600);
}

std::string show_bytes(double bytes) {
  static constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = std::uint8_t(c);
    if (byte >= 0x20 && byte != 0x7F) {
      out += c;
    } else if (c == '\t') {
      out += ' ';
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

}  // namespace atl::cli
