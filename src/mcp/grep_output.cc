#include "mcp/grep_output.h"

#include <charconv>

namespace atl::mcp {

std::vector<GrepMatch> parse_grep(std::string_view output) {
  std::vector<GrepMatch> out;
  for (;;) {
    const std::size_t name_end = output.find('\0');
    if (name_end == std::string_view::npos) return out;
    const std::size_t line_end = output.find('\n', name_end);
    if (line_end == std::string_view::npos) return out;
    const std::string_view rest = output.substr(name_end + 1, line_end - name_end - 1);
    GrepMatch match;
    const auto [stop, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), match.line);
    const auto digits = std::size_t(stop - rest.data());
    if (ec == std::errc() && digits < rest.size() && rest[digits] == ':') {
      match.file = output.substr(0, name_end);
      match.text = rest.substr(digits + 1);
      if (match.text.ends_with('\r')) match.text.pop_back();
      out.push_back(std::move(match));
    }
    output.remove_prefix(line_end + 1);
  }
}

std::vector<ListedFile> parse_find(std::string_view output) {
  std::vector<ListedFile> out;
  for (;;) {
    const std::size_t end = output.find('\0');
    if (end == std::string_view::npos) return out;
    const std::string_view item = output.substr(0, end);
    ListedFile file;
    const auto [stop, ec] = std::from_chars(item.data(), item.data() + item.size(), file.modified);
    const auto digits = std::size_t(stop - item.data());
    if (ec == std::errc() && digits + 1 < item.size() && item[digits] == ' ') {
      file.path = item.substr(digits + 1);
      out.push_back(std::move(file));
    }
    output.remove_prefix(end + 1);
  }
}

}  // namespace atl::mcp
