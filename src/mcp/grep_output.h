// What `find -printf` and `grep -Z` print, as values. It comes from a sandbox: anything may be in
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::mcp {

struct GrepMatch {
  std::string file;
  std::int64_t line = 0;
  std::string text;  // without its line end
};

// "FILE\0LINE:TEXT\n" again and again; what comes behind the last whole line is left out.
std::vector<GrepMatch> parse_grep(std::string_view output);

struct ListedFile {
  double modified = 0;  // seconds since the epoch
  std::string path;     // relative to where the search began
};

// "SECONDS PATH\0" again and again.
std::vector<ListedFile> parse_find(std::string_view output);

}  // namespace atl::mcp
