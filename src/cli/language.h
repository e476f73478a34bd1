// The languages of the code interpreter, as the command line names them.
#pragma once

#include <string>
#include <string_view>

namespace atl::cli {

struct Language {
  std::string_view name;         // as the interpreter calls it
  std::string_view names[4];     // what people type, besides
  std::string_view suffixes[3];  // of files
  std::string_view program;      // that runs a file, where there is no interpreter; may be empty
  bool in_slim;                  // code-interpreter-slim has it
};

const Language& default_language();                       // Python
const Language* find_language(std::string_view name);     // without case; null: unknown
const Language* language_of_file(std::string_view path);  // null: the name says nothing
std::string language_names();                             // "python, javascript, ..."

}  // namespace atl::cli
