#include "runtime/jail/ranges.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "sys/files.h"

namespace atl::jail {
std::string to_text(const RangeOwner& owner) {
  return owner.home + "\n" + owner.instance + "\n" + owner.sandbox + "\n";
}

Result<RangeOwner> parse_range_owner(std::string_view text) {
  RangeOwner owner;
  for (std::string* field : {&owner.home, &owner.instance, &owner.sandbox}) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return make_error(Errc::data_loss, "slot file is not complete");
    *field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  return owner;
}

std::string instance_name(const std::string& home, const std::string& instance) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (char c : home + "\n" + instance) {
    hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  }
  constexpr const char* digits = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += digits[hash >> shift & 15];
  return out;
}

Ranges::Ranges(sys::UniqueFd dir, std::string home, std::string instance, SlotBounds bounds)
    : dir_(std::move(dir)),
      home_(std::move(home)),
      instance_(std::move(instance)),
      bounds_(bounds),
      // Servers start at different places, so that they seldom meet.
      next_(bounds.first + std::uint32_t(::getpid()) * 61 % (bounds.end - bounds.first)) {}

std::optional<std::uint32_t> Ranges::to_slot(std::string_view name) const {
  std::uint32_t slot = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), slot);
  if (error != std::errc() || end != name.data() + name.size() || slot < bounds_.first ||
      slot >= bounds_.end)
    return std::nullopt;
  return slot;
}

Result<Ranges> Ranges::open(const std::string& directory, std::string home, std::string instance,
                            SlotBounds bounds) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(directory, O_RDONLY | O_DIRECTORY));
  return Ranges(std::move(dir), std::move(home), std::move(instance), bounds);
}

Result<std::uint32_t> Ranges::take(const std::string& sandbox) {
  const std::string text = to_text({home_, instance_, sandbox});
  for (std::uint32_t attempt = 0; attempt < bounds_.end - bounds_.first; ++attempt) {
    const std::uint32_t slot = next_;
    next_ = next_ + 1 < bounds_.end ? next_ + 1 : bounds_.first;
    auto made = sys::publish_file(dir_, std::to_string(slot), text, 0600);
    if (made) return slot;
    if (made.error().sys_errno != EEXIST) return std::move(made).error();
  }
  return make_error(Errc::resource_exhausted, "no free id range");
}

Result<void> Ranges::claim(std::uint32_t slot, const std::string& sandbox) {
  if (slot < bounds_.first || slot >= bounds_.end)
    return make_error(Errc::data_loss, "no slot " + std::to_string(slot));
  const RangeOwner wanted{home_, instance_, sandbox};
  auto made = sys::publish_file(dir_, std::to_string(slot), to_text(wanted), 0600);
  if (made || made.error().sys_errno != EEXIST) return made;
  ATOLL_TRY_ASSIGN(RangeOwner owner, owner_of(std::to_string(slot)));
  if (owner == wanted) return {};
  return make_error(Errc::failed_precondition, "the id range of this disk has another owner now");
}

Result<void> Ranges::give_back(std::uint32_t slot) {
  return sys::remove_file(dir_, std::to_string(slot));
}

Result<RangeOwner> Ranges::owner_of(const std::string& name) const {
  ATOLL_TRY_ASSIGN(std::string text, sys::read_beneath(dir_, name, 8192));
  return parse_range_owner(text);
}

Result<std::vector<TakenSlot>> Ranges::mine() const {
  std::vector<TakenSlot> out;
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(dir_));
  for (const std::string& name : names) {
    const auto slot = to_slot(name);
    if (!slot) continue;
    auto owner = owner_of(name);
    // Being written or being removed by another server.
    if (!owner) continue;
    if (owner->home == home_ && owner->instance == instance_)
      out.push_back({*slot, owner->sandbox});
  }
  return out;
}

std::vector<OrphanSlot> Ranges::orphans() const {
  std::vector<OrphanSlot> out;
  auto names = sys::list_dir(dir_);
  if (!names) return out;
  for (const std::string& name : *names) {
    const auto slot = to_slot(name);
    if (!slot) continue;
    auto owner = owner_of(name);
    // Files appear whole; one that is not was left by something else and belongs to nobody.
    if (!owner && owner.error().code == Errc::data_loss) (void)sys::remove_file(dir_, name);
    if (!owner || owner->home.empty() || owner->home.front() != '/') continue;
    if (sys::presence_of(owner->home) == sys::Presence::absent)
      out.push_back({*slot, std::move(*owner)});
  }
  return out;
}

void Ranges::sweep_orphans() {
  // Taken again or gone already: either is fine.
  for (const OrphanSlot& orphan : orphans()) (void)give_back(orphan.slot);
}

}  // namespace atl::jail
