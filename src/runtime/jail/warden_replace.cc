// Creates that replace: the sandbox of the same id is put aside until the new one runs. Its
// directory is renamed to ID.aside, which is no id; a warden that finds one puts it back, or
// removes it if the new one is whole.
#include <fcntl.h>

#include <string_view>
#include <utility>

#include "base/log.h"
#include "runtime/jail/warden.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr std::string_view kAside = ".aside";

std::string aside(const std::string& id) { return id + std::string(kAside); }

}  // namespace

Result<void> Warden::put_aside(const std::string& id) {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return {};
  Sandbox& sandbox = found->second;
  if (launches_.contains(id) || !sandbox.whole || sandbox.removing || sandbox.alive() ||
      !sandbox.settled || sandbox.job != 0 || sandbox.waiting_boot)
    return make_error(Errc::failed_precondition, "sandbox " + id + " is not at rest");
  ATOLL_TRY(host_.faults.before("replace.aside"));
  ATOLL_TRY(sys::rename_within(host_.sandboxes, id, aside(id)));
  asides_.insert_or_assign(id, std::move(sandbox));
  sandboxes_.erase(found);
  host_.faults.after("replace.aside");
  return sys::flush_to_disk(host_.sandboxes);
}

void Warden::put_back(const std::string& id) {
  const auto found = asides_.find(id);
  if (found == asides_.end()) return;
  auto back = sys::rename_within(host_.sandboxes, aside(id), id);
  if (!back) {
    // The next warden tries again.
    log::error("cannot put a sandbox back", {{"sandbox", id}, {"error", back.error().message}});
    return;
  }
  sandboxes_.insert_or_assign(id, std::move(found->second));
  asides_.erase(found);
}

Result<void> Warden::drop_aside(const std::string& id) {
  ATOLL_TRY(host_.faults.before("replace.drop"));
  ATOLL_TRY(sys::remove_tree(host_.sandboxes, aside(id)));
  const auto found = asides_.find(id);
  if (found != asides_.end()) {
    const std::optional<std::uint32_t> slot = found->second.slot;
    asides_.erase(found);
    if (slot && host_.network) {
      ATOLL_TRY(host_.network->remove(*slot));
    }
    if (slot) {
      ATOLL_TRY(host_.ranges.give_back(*slot));
    }
  }
  host_.faults.after("replace.drop");
  return {};
}

// Before anything is adopted. The id ranges that this leaves without a sandbox are given back with
// the others.
Result<void> Warden::end_interrupted_replaces() {
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(host_.sandboxes));
  for (const std::string& name : names) {
    if (!name.ends_with(kAside)) continue;
    const std::string id = name.substr(0, name.size() - kAside.size());
    if (!wire::validate_id(id, "id")) continue;
    auto directory = sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY);
    auto mark = directory ? read_mark(*directory) : Result<std::optional<Mark>>(std::nullopt);
    if (mark && *mark) {
      ATOLL_TRY(sys::remove_tree(host_.sandboxes, name));
      continue;
    }
    Sandbox remains;
    ATOLL_TRY(remove_all_of(id, remains));
    ATOLL_TRY(sys::rename_within(host_.sandboxes, name, id));
  }
  return {};
}

}  // namespace atl::jail
