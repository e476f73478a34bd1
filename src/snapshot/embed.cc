// The programs of inside/ as bytes of this library.
#include "snapshot/embed.h"

// NOLINTNEXTLINE(hicpp-no-assembler): the assembler is what includes files
asm(R"(
  .section .rodata
  .global atoll_preload_begin
  .global atoll_preload_end
  .global atoll_helper_begin
  .global atoll_helper_end
  .balign 16
atoll_preload_begin:
  .incbin ")" ATOLL_PRELOAD R"("
atoll_preload_end:
  .balign 16
atoll_helper_begin:
  .incbin ")" ATOLL_HELPER R"("
atoll_helper_end:
  .text
)");

extern "C" {
extern const char atoll_preload_begin[];
extern const char atoll_preload_end[];
extern const char atoll_helper_begin[];
extern const char atoll_helper_end[];
}

namespace atl::snapshot {

std::string_view preload_library() {
  return {atoll_preload_begin, std::size_t(atoll_preload_end - atoll_preload_begin)};
}
std::string_view helper_program() {
  return {atoll_helper_begin, std::size_t(atoll_helper_end - atoll_helper_begin)};
}

}  // namespace atl::snapshot
