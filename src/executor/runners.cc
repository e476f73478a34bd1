// The files of runners/ as bytes of this library.
#include "executor/runners.h"

// NOLINTNEXTLINE(hicpp-no-assembler): the assembler is what includes files
asm(R"(
  .section .rodata
  .global atoll_run_py_begin
  .global atoll_run_py_end
  .global atoll_run_js_begin
  .global atoll_run_js_end
  .global atoll_check_py_begin
  .global atoll_check_py_end
  .global atoll_check_js_begin
  .global atoll_check_js_end
atoll_run_py_begin:
  .incbin ")" ATOLL_RUNNERS R"(/run.py"
atoll_run_py_end:
atoll_run_js_begin:
  .incbin ")" ATOLL_RUNNERS R"(/run.js"
atoll_run_js_end:
atoll_check_py_begin:
  .incbin ")" ATOLL_RUNNERS R"(/check.py"
atoll_check_py_end:
atoll_check_js_begin:
  .incbin ")" ATOLL_RUNNERS R"(/check.js"
atoll_check_js_end:
  .text
)");

extern "C" {
extern const char atoll_run_py_begin[];
extern const char atoll_run_py_end[];
extern const char atoll_run_js_begin[];
extern const char atoll_run_js_end[];
extern const char atoll_check_py_begin[];
extern const char atoll_check_py_end[];
extern const char atoll_check_js_begin[];
extern const char atoll_check_js_end[];
}

namespace atl::executor {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, std::size_t(end - begin)};
}

}  // namespace

std::string_view runner_of(Language language) {
  return language == Language::python ? between(atoll_run_py_begin, atoll_run_py_end)
                                      : between(atoll_run_js_begin, atoll_run_js_end);
}

std::string_view checker_of(Language language) {
  return language == Language::python ? between(atoll_check_py_begin, atoll_check_py_end)
                                      : between(atoll_check_js_begin, atoll_check_js_end);
}

}  // namespace atl::executor
