#include "disk_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/jail/disk_copy.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/ranges.h"
#include "sys/files.h"
#include "sys/namespaces.h"

namespace atl::testing {
namespace fs = std::filesystem;
using jail::Ranges;

namespace {

bool leave_the_mounts() {
  static const bool left = ::unshare(CLONE_NEWNS) == 0 && sys::make_all_private().ok();
  return left;
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace

std::string snapshot_id(int number) {
  std::string digits = std::to_string(number);
  return "s" + std::string(20 - digits.size(), '0') + digits;
}

void DiskTest::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_TRUE(leave_the_mounts());
  char name[] = "/var/tmp/atoll-disk-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  home_ = name;
  ::chmod(name, 0755);
  for (const char* dir : {"/images", "/boxes", "/roots", "/place", "/template"})
    fs::create_directory(home_ + dir);
  make_template();
  home_fd_ = *sys::open_trusted(home_, O_RDONLY | O_DIRECTORY);
  auto store = jail::SnapshotStore::open(home_fd_, "test");
  ASSERT_TRUE(store.ok()) << store.error().message;
  store_.emplace(std::move(*store));
  disks_.emplace(*sys::open_beneath(home_fd_, "images", O_RDONLY | O_DIRECTORY));
  layers_ = std::make_unique<jail::Layers>(home_ + "/place");
}

void DiskTest::TearDown() {
  if (home_.empty()) return;
  disks_.reset();
  layers_.reset();
  for (const auto& root : fs::directory_iterator(home_ + "/roots"))
    ::umount2(root.path().c_str(), MNT_DETACH);
  std::error_code ec;
  fs::remove_all(home_, ec);
  EXPECT_FALSE(ec) << ec.message();
}

void DiskTest::make_template() {
  const fs::path root = home_ + "/template";
  for (const char* dir : {"etc", "data", "data/deep", "data/deep/er", "tools", "tools/bin", "gone"})
    fs::create_directory(root / dir);
  write_text(root / "etc/conf", "as delivered\n");
  write_text(root / "etc/other", "other\n");
  write_text(root / "data/a", std::string(5000, 'a'));
  write_text(root / "data/b", "b");
  write_text(root / "data/deep/er/file", "far down");
  write_text(root / "tools/bin/run", "#!/bin/sh\n");
  write_text(root / "gone/old", "old");
  fs::permissions(root / "tools/bin/run", fs::perms(0755));
  write_text(root / "data/b2", "b2");
  fs::create_symlink("conf", root / "etc/link");
  ASSERT_EQ(::chown((root / "etc/other").c_str(), 33, 34), 0);
}

Result<Box> DiskTest::make_box(const std::string& name, std::uint32_t slot,
                               std::vector<jail::LayerRef> layers) {
  Box box{name, slot, home_ + "/roots/" + name, {}, std::move(layers)};
  fs::create_directory(home_ + "/boxes/" + name);
  fs::create_directory(box.path);
  ATOLL_TRY_ASSIGN(box.directory,
                   sys::open_trusted(home_ + "/boxes/" + name, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(jail::Disk disk, disks_->take(kDiskBytes));
  ATOLL_TRY(sys::link_as(disk.image, box.directory, jail::kImageName));
  ATOLL_TRY(mount_box(box, std::move(disk), true));
  ATOLL_TRY(jail::write_mark(box.directory, {slot, 0, box.layers}));
  return box;
}

Result<void> DiskTest::mount_box(Box& box, jail::Disk disk, bool fresh) {
  const uid_t base = Ranges::first_id(box.slot);
  ATOLL_TRY(
      mount_disk(disk, jail::disk_mount(), fresh ? jail::Content::empty : jail::Content::kept));
  ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                   sys::open_beneath(disk.mount.fd(), "upper", O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd work,
                   sys::open_beneath(disk.mount.fd(), "work", O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(jail::OpenLayers open, layers_->open(*store_, box.layers, box.slot));
  ATOLL_TRY_ASSIGN(sys::UniqueFd root,
                   sys::open_trusted(home_ + "/template", O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::DetachedMount lowest, sys::DetachedMount::clone_tree(root));
  ATOLL_TRY_ASSIGN(sys::UniqueFd ids,
                   sys::new_user_namespace({0, base, jail::kIdsPerSandbox}, base));
  ATOLL_TRY(lowest.restrict_to(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
  ATOLL_TRY(lowest.idmap(ids));
  if (fresh) {
    ATOLL_TRY(jail::prepare_upper(upper, open.lowers.empty() ? lowest.fd() : open.lowers[0].fd()));
    ATOLL_TRY(sys::change_owner(disk.mount.fd(), "work", base, base));
  }
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("overlay"));
  ATOLL_TRY(context.set_options({{"source", "test"},
                                 {"index", "on"},
                                 {"nfs_export", "on"},
                                 {"redirect_dir", "on"},
                                 {"xino", "on"}}));
  for (const sys::DetachedMount& lower : open.lowers) {
    ATOLL_TRY(context.set_fd("lowerdir+", lower.fd()));
  }
  ATOLL_TRY(context.set_fd("lowerdir+", lowest.fd()));
  ATOLL_TRY(context.set_fd("upperdir", upper));
  ATOLL_TRY(context.set_fd("workdir", work));
  ATOLL_TRY_ASSIGN(sys::DetachedMount mounted, context.mount(MOUNT_ATTR_NODEV));
  ATOLL_TRY_ASSIGN(sys::UniqueFd place, sys::open_trusted(box.path, O_PATH | O_DIRECTORY));
  return mounted.attach(place);
}

void DiskTest::close(Box& box) { EXPECT_EQ(::umount2(box.path.c_str(), 0), 0) << strerror(errno); }

Result<void> DiskTest::reopen(Box& box) {
  for (int i = 0;; ++i) {
    // The kernel lets go of a loop device a little later.
    auto disk = jail::open_kept(box.directory, jail::kImageName);
    if (!disk && disk.error().code == Errc::failed_precondition && i < 500) {
      ::usleep(10000);
      continue;
    }
    if (!disk) return std::move(disk).error();
    return mount_box(box, std::move(*disk), false);
  }
}

std::string DiskTest::run(const Box& box, const std::string& command) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const uid_t base = Ranges::first_id(box.slot);
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::umask(022);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(base, base, base) != 0 ||
        ::setresuid(base, base, base) != 0 || ::chdir(box.path.c_str()) != 0)
      ::_exit(99);
    ::execl("/bin/sh", "sh", "-ec", command.c_str(), nullptr);
    ::_exit(98);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::read(ends[0], buffer, sizeof(buffer))) > 0) out.append(buffer, std::size_t(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status == 0) return out;
  return "exit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + ": " + out;
}

Result<void> DiskTest::snapshot(const Box& box, const std::string& id) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory, store_->begin(id));
  ATOLL_TRY(jail::copy_disk(box.directory, directory, jail::kImageName));
  ATOLL_TRY(jail::flush_copy(directory, jail::kImageName));
  return store_->publish(id, {box.slot, 0, box.layers});
}

std::map<std::string, std::string> DiskTest::describe(const Box& box, Links links) {
  const uid_t base = Ranges::first_id(box.slot);
  std::map<std::string, std::string> out;
  std::map<ino_t, std::string> first;
  const auto add = [&](const fs::path& path, const std::string& name) {
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) {
      out[name] = strerror(errno);
      return;
    }
    std::ostringstream line;
    line << std::oct << info.st_mode << std::dec << " " << info.st_uid - base << ":"
         << info.st_gid - base << " mtime " << info.st_mtim.tv_sec << "." << info.st_mtim.tv_nsec;
    if (!S_ISDIR(info.st_mode)) line << " size " << info.st_size;
    if (S_ISLNK(info.st_mode)) line << " -> " << fs::read_symlink(path).string();
    if (S_ISREG(info.st_mode)) {
      line << " content " << std::hash<std::string>()(text_of(path));
      const auto [same, fresh] = first.emplace(info.st_ino, name);
      if (!fresh && links == Links::told) line << " is " << same->second;
    }
    char names[4096];
    const ssize_t n = ::llistxattr(path.c_str(), names, sizeof(names));
    for (ssize_t at = 0; at < n;) {
      const std::string attribute(names + at);
      char value[256];
      const ssize_t length = ::lgetxattr(path.c_str(), attribute.c_str(), value, sizeof(value));
      line << " " << attribute << "=";
      for (ssize_t i = 0; i < length; ++i) line << std::hex << int(std::uint8_t(value[i]));
      at += ssize_t(attribute.size()) + 1;
    }
    out[name] = line.str();
  };
  add(box.path, ".");
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(box.path)) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  for (const fs::path& path : all) add(path, path.lexically_relative(box.path).string());
  return out;
}

std::string difference(const std::map<std::string, std::string>& left,
                       const std::map<std::string, std::string>& right) {
  std::string out;
  for (const auto& [path, line] : left) {
    const auto other = right.find(path);
    if (other == right.end()) {
      out += "only left: " + path + " " + line + "\n";
    } else if (other->second != line) {
      out += path + ":\n  " + line + "\n  " + other->second + "\n";
    }
  }
  for (const auto& [path, line] : right) {
    if (!left.contains(path)) out += "only right: " + path + " " + line + "\n";
  }
  return out;
}

}  // namespace atl::testing
