#include "runtime/jail/ranges.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "sys/files.h"

namespace atl::jail {
namespace {

std::optional<std::uint32_t> to_slot(std::string_view name) {
  std::uint32_t slot = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), slot);
  if (error != std::errc() || end != name.data() + name.size() || slot < kFirstSlot ||
      slot >= kEndSlot)
    return std::nullopt;
  return slot;
}

}  // namespace

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

Ranges::Ranges(sys::UniqueFd dir, std::string home, std::string instance)
    : dir_(std::move(dir)),
      home_(std::move(home)),
      instance_(std::move(instance)),
      // Servers start at different places, so that they seldom meet.
      next_(kFirstSlot + std::uint32_t(::getpid()) * 61 % (kEndSlot - kFirstSlot)) {}

Result<Ranges> Ranges::open(const std::string& directory, std::string home, std::string instance) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(directory, O_RDONLY | O_DIRECTORY));
  return Ranges(std::move(dir), std::move(home), std::move(instance));
}

Result<std::uint32_t> Ranges::take(const std::string& sandbox) {
  const std::string text = to_text({home_, instance_, sandbox});
  for (std::uint32_t attempt = 0; attempt < kEndSlot - kFirstSlot; ++attempt) {
    const std::uint32_t slot = next_;
    next_ = next_ + 1 < kEndSlot ? next_ + 1 : kFirstSlot;
    auto made = sys::publish_file(dir_, std::to_string(slot), text, 0600);
    if (made) return slot;
    if (made.error().sys_errno != EEXIST) return std::move(made).error();
  }
  return make_error(Errc::resource_exhausted, "no free id range");
}

Result<void> Ranges::claim(std::uint32_t slot, const std::string& sandbox) {
  if (slot < kFirstSlot || slot >= kEndSlot)
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

void Ranges::sweep_orphans() {
  auto names = sys::list_dir(dir_);
  if (!names) return;
  for (const std::string& name : *names) {
    if (!to_slot(name)) continue;
    auto owner = owner_of(name);
    // Files appear whole; one that is not was left by something else and belongs to nobody.
    if (!owner && owner.error().code == Errc::data_loss) (void)sys::remove_file(dir_, name);
    if (!owner || owner->home.empty() || owner->home.front() != '/') continue;
    if (sys::presence_of(owner->home) != sys::Presence::absent) continue;
    (void)sys::remove_file(dir_, name);  // taken again or gone already: either is fine
  }
}

}  // namespace atl::jail
