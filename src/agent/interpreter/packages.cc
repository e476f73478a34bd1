#include "agent/interpreter/packages.h"

#include <sys/stat.h>

#include <filesystem>
#include <vector>

namespace atl::agent::interpreter {
namespace {

// `parent`/python3*/`name`
std::vector<std::string> versions(const std::string& parent, const std::string& name) {
  std::vector<std::string> out;
  std::error_code ec;
  for (std::filesystem::directory_iterator entry(parent, ec), end; !ec && entry != end;
       entry.increment(ec)) {
    const std::string version = entry->path().filename();
    if (version.starts_with("python3")) out.push_back(parent + "/" + version + "/" + name);
  }
  return out;
}

}  // namespace

PackageStamps::PackageStamps(std::string root, std::string home)
    : root_(root == "/" ? "" : std::move(root)), home_(std::move(home)), at_boot_(look()) {}

bool PackageStamps::changed() const { return look() != at_boot_; }

PackageStamps::Stamps PackageStamps::look() const {
  std::vector<std::string> directories = versions(root_ + "/usr/local/lib", "dist-packages");
  for (std::string& directory : versions(home_ + "/.local/lib", "site-packages"))
    directories.push_back(std::move(directory));
  directories.push_back(root_ + "/usr/lib/python3/dist-packages");
  Stamps out;
  for (const std::string& directory : directories) {
    struct stat st{};
    if (::stat(directory.c_str(), &st) != 0) continue;
    // Not the inode: its number is another one when a restored sandbox lies over other layers.
    out[directory] = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
  }
  return out;
}

}  // namespace atl::agent::interpreter
