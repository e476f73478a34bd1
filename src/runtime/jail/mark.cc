#include "runtime/jail/mark.h"

#include <cerrno>
#include <charconv>

#include "runtime/jail/protocol.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr std::string_view kSlotKey = "slot";
constexpr std::string_view kDiskKey = "disk";
constexpr std::string_view kLayerKey = "layer";
constexpr std::string_view kFlatKey = "flat";
constexpr std::size_t kMaxMark = 8192;
constexpr const char* kNextName = "complete.new";

// Reads `key value\n` from the front of `text`; nullopt if another line is there.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view key) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(key) || text[key.size()] != ' ')
    return std::nullopt;
  const std::string_view value = text.substr(key.size() + 1, end - key.size() - 1);
  text.remove_prefix(end + 1);
  return value;
}

bool read_number(std::string_view text, std::uint32_t& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string to_text(const Mark& mark) {
  std::string text = std::string(kSlotKey) + " " + std::to_string(mark.slot) + "\n";
  if (mark.disk_slot != 0)
    text += std::string(kDiskKey) + " " + std::to_string(mark.disk_slot) + "\n";
  for (const LayerRef& layer : mark.layers)
    text += std::string(layer.flat ? kFlatKey : kLayerKey) + " " + layer.snapshot + "\n";
  return text;
}

Result<Mark> parse_mark(std::string_view text) {
  const auto rubbish = [] {
    return make_error(Errc::data_loss, "the mark of the sandbox is not readable");
  };
  Mark mark;
  const auto slot = take_line(text, kSlotKey);
  if (!slot || !read_number(*slot, mark.slot)) return rubbish();
  if (const auto disk = take_line(text, kDiskKey)) {
    if (!read_number(*disk, mark.disk_slot) || mark.disk_slot == 0) return rubbish();
  }
  while (!text.empty()) {
    LayerRef layer;
    auto name = take_line(text, kLayerKey);
    if (!name) {
      name = take_line(text, kFlatKey);
      layer.flat = true;
    }
    if (!name || !wire::validate_snapshot_id(*name, "snapshot")) return rubbish();
    // A flat layer lies over the template: it is the last one.
    if (mark.layers.size() == kMaxLayers || (!mark.layers.empty() && mark.layers.back().flat))
      return rubbish();
    layer.snapshot = *name;
    mark.layers.push_back(std::move(layer));
  }
  return mark;
}

Result<void> write_mark(const sys::UniqueFd& directory, const Mark& mark) {
  return sys::publish_file(directory, kMarkName, to_text(mark), 0600);
}

Result<void> replace_mark(const sys::UniqueFd& directory, const Mark& mark) {
  ATOLL_TRY(sys::remove_file(directory, kNextName));
  ATOLL_TRY(sys::publish_file(directory, kNextName, to_text(mark), 0600));
  return sys::rename_over(directory, kNextName, kMarkName);
}

Result<std::optional<Mark>> read_mark(const sys::UniqueFd& directory) {
  auto text = sys::read_beneath(directory, kMarkName, kMaxMark);
  if (!text && text.error().sys_errno == ENOENT) return std::optional<Mark>();
  if (!text) return std::move(text).error();
  ATOLL_TRY_ASSIGN(Mark mark, parse_mark(*text));
  return std::optional<Mark>(std::move(mark));
}

Result<void> remove_mark(const sys::UniqueFd& directory) {
  return sys::remove_file(directory, kMarkName);
}

}  // namespace atl::jail
