// Rows for people and for programs: aligned columns under a heading on a terminal, otherwise one
// line per row with tabs between the values and no heading.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> heading) : heading_(std::move(heading)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  std::string aligned() const;
  std::string plain() const;
  void print() const;  // whichever fits stdout

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
};

// "90s", "15m", "2h", "7d", or seconds without a unit; nullopt for anything else.
std::optional<std::chrono::seconds> parse_duration(std::string_view text);
// "42s", "3m 12s", "5h 3m", "2d 4h"; "-" in front when negative.
std::string show_duration(std::chrono::seconds duration);
// "812 B", "1.5 MiB"
std::string show_bytes(double bytes);
// Control characters of text that a sandbox may have written do not reach a terminal.
std::string printable(std::string_view text);

}  // namespace atl::cli
