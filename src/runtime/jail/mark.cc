#include "runtime/jail/mark.h"

#include <cerrno>
#include <charconv>

#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr std::string_view kSlotKey = "slot ";
constexpr std::size_t kMaxMark = 256;

}  // namespace

std::string to_text(const Mark& mark) {
  return std::string(kSlotKey) + std::to_string(mark.slot) + "\n";
}

Result<Mark> parse_mark(std::string_view text) {
  Mark mark;
  if (text.starts_with(kSlotKey)) {
    text.remove_prefix(kSlotKey.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mark.slot);
    if (error == std::errc() && end + 1 == text.data() + text.size() && *end == '\n') return mark;
  }
  return make_error(Errc::data_loss, "the mark of the sandbox is not readable");
}

Result<void> write_mark(const sys::UniqueFd& directory, const Mark& mark) {
  return sys::publish_file(directory, kMarkName, to_text(mark), 0600);
}

Result<std::optional<Mark>> read_mark(const sys::UniqueFd& directory) {
  auto text = sys::read_beneath(directory, kMarkName, kMaxMark);
  if (!text && text.error().sys_errno == ENOENT) return std::optional<Mark>();
  if (!text) return std::move(text).error();
  ATOLL_TRY_ASSIGN(Mark mark, parse_mark(*text));
  return std::optional<Mark>(mark);
}

Result<void> remove_mark(const sys::UniqueFd& directory) {
  return sys::remove_file(directory, kMarkName);
}

}  // namespace atl::jail
