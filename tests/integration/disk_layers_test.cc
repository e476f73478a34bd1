// Disks of snapshots as layers: a sandbox made from a snapshot sees what its source saw, and
// neither sees what the other does later.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "disk_fixture.h"
#include "runtime/jail/disk_copy.h"
#include "runtime/jail/ext4.h"
#include "runtime/jail/launch.h"
#include "sys/files.h"
#include "sys/freeze.h"
#include "sys/loop.h"

namespace atl::testing {
namespace {

using jail::LayerRef;
namespace fs = std::filesystem;

constexpr std::uint32_t kSource = 20001;

// What overlayfs has names for: whiteouts, opaque and redirected directories, copied-up files, and
// what any filesystem has.
constexpr const char* kChanges = R"(
  rm data/a
  rm -r gone && mkdir gone && echo new > gone/new
  mv tools renamed && echo more > renamed/more
  mv data/deep/er data/er && rm -r data/deep
  echo mine > etc/conf
  echo linked > one && ln one two && mkdir sub && ln one sub/three
  echo again >> data/b
  ln -s /nowhere dangling && mkfifo pipe && chmod 4755 one
  mkdir -m 1777 sticky && touch -d 2001-02-03T04:05:06.789 sticky/old etc/other 2>/dev/null || true
  truncate -s 3M sparse && echo end >> sparse
)";

TEST_F(DiskTest, ACopySeesWhatTheSourceSaw) {
  auto source = make_box("source", kSource);
  ASSERT_TRUE(source.ok()) << source.error().message;
  ASSERT_EQ(run(*source, kChanges), "");
  ASSERT_EQ(::setxattr((source->path + "/one").c_str(), "user.note", "kept", 4, 0), 0);
  ASSERT_TRUE(snapshot(*source, snapshot_id(1)).ok());
  const auto before = describe(*source);
  EXPECT_TRUE(before.contains("renamed/bin/run"));
  EXPECT_FALSE(before.contains("data/a") || before.contains("gone/old") ||
               before.contains("tools") || before.contains("data/deep"));

  auto copy = make_box("copy", kSource + 7, *store_->chain_of(snapshot_id(1)));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(difference(before, describe(*copy)), "");

  // Neither sees what the other does.
  EXPECT_EQ(run(*copy, "rm one two && echo copy > etc/conf && mv renamed tools"), "");
  EXPECT_EQ(difference(before, describe(*source)), "");
  EXPECT_EQ(run(*source, "echo source > etc/conf && echo x > later"), "");
  EXPECT_EQ(run(*copy, "cat etc/conf; ls later tools/bin 2>&1 | sort"),
            "copy\nls: cannot access 'later': No such file or directory\nrun\ntools/bin:\n");

  // And again after both were away, as after a boot of the host.
  const auto after = describe(*copy);
  close(*copy);
  close(*source);
  layers_ = std::make_unique<jail::Layers>(home_ + "/place");
  auto again = reopen(*copy);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(difference(after, describe(*copy)), "");
}

TEST_F(DiskTest, Generations) {
  Box box = *make_box("box0", kSource);
  ASSERT_EQ(run(box, kChanges), "");
  for (int i = 1; i <= 5; ++i) {
    const std::string n = std::to_string(i);
    ASSERT_TRUE(snapshot(box, snapshot_id(i)).ok());
    const auto before = describe(box);
    auto next = make_box("box" + n, kSource + std::uint32_t(i), *store_->chain_of(snapshot_id(i)));
    ASSERT_TRUE(next.ok()) << next.error().message;
    ASSERT_EQ(next->layers.size(), std::size_t(i));
    ASSERT_EQ(difference(before, describe(*next)), "");
    ASSERT_EQ(run(*next, "mv renamed r" + n + " && mv r" + n + " renamed && echo " + n +
                             " > renamed/bin/f" + n + " && rm -f renamed/bin/f" +
                             std::to_string(i - 1) + " && echo " + n + " > etc/conf"),
              "");
    box = std::move(*next);
  }
  EXPECT_EQ(run(box, "cat etc/conf && ls renamed/bin"), "5\nf5\nrun\n");
}

TEST_F(DiskTest, ADiskAtRestCanBeCopiedToo) {
  Box box = *make_box("box", kSource);
  ASSERT_EQ(run(box, kChanges), "");
  const auto before = describe(box);
  close(box);
  for (int i = 0; i < 500 && !*jail::is_unmounted(box.directory, jail::kImageName); ++i)
    ::usleep(10000);
  ASSERT_TRUE(snapshot(box, snapshot_id(1)).ok());
  auto copy = make_box("copy", kSource + 1, *store_->chain_of(snapshot_id(1)));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(difference(before, describe(*copy)), "");
}

TEST_F(DiskTest, CopiesAreWholeFilesystemsWithNamesOfTheirOwn) {
  const Box box = *make_box("box", kSource);
  ASSERT_EQ(run(box, kChanges), "");
  std::set<jail::Uuid> seen = {
      *jail::uuid_of(*sys::open_beneath(box.directory, "disk.img", O_RDONLY))};
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(snapshot(box, snapshot_id(i)).ok());
    const auto dir = *store_->directory(snapshot_id(i));
    const auto image = *sys::open_beneath(dir, "disk.img", O_RDONLY);
    EXPECT_TRUE(seen.insert(*jail::uuid_of(image)).second);
    EXPECT_EQ(::system(("e2fsck -fn " + sys::path_of(image) + " >/dev/null 2>&1").c_str()), 0);
  }
  // Of a disk as earlier versions formatted it.
  const std::string old = home_ + "/old.img";
  ASSERT_EQ(::system(("truncate -s 64M " + old +
                      " && mkfs.ext4 -q -O ^has_journal,^metadata_csum_seed " + old)
                         .c_str()),
            0);
  const auto image = *sys::open_trusted(old, O_RDWR);
  ASSERT_TRUE(jail::make_distinct(image, *jail::new_uuid()).ok());
  EXPECT_EQ(::system(("e2fsck -fn " + old + " >/dev/null 2>&1").c_str()), 0);
  // And of something else.
  std::ofstream(home_ + "/junk") << std::string(8192, 'x');
  EXPECT_EQ(jail::uuid_of(*sys::open_trusted(home_ + "/junk", O_RDONLY)).error().code,
            Errc::data_loss);
}

// The filesystem of a box, to freeze it.
Result<sys::UniqueFd> filesystem_of(const Box& box) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd image, sys::open_beneath(box.directory, "disk.img", O_RDONLY));
  ATOLL_TRY_ASSIGN(auto device, sys::LoopDevice::find(image));
  if (!device) return make_error(Errc::not_found, "no device");
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("ext4"));
  ATOLL_TRY(context.set("source", device->path()));
  ATOLL_TRY_ASSIGN(sys::DetachedMount mount, context.mount(0));
  return sys::open_beneath(mount.fd(), "", O_RDONLY | O_DIRECTORY);
}

// Whether it is, asked without ever waiting: freezing a frozen one is refused.
bool is_frozen(const Box& box) {
  auto frozen = sys::FrozenFilesystem::freeze(*filesystem_of(box));
  return !frozen && frozen.error().code == Errc::failed_precondition;
}

TEST_F(DiskTest, WhoeverFroseAFilesystemAndDiesThawsIt) {
  const Box box = *make_box("box", kSource);
  EXPECT_FALSE(is_frozen(box));
  {
    auto frozen = sys::FrozenFilesystem::freeze(*filesystem_of(box));
    ASSERT_TRUE(frozen.ok()) << frozen.error().message;
    EXPECT_TRUE(is_frozen(box));
  }
  EXPECT_FALSE(is_frozen(box));

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto frozen = sys::FrozenFilesystem::freeze(*filesystem_of(box));
    (void)!::write(ends[1], frozen.ok() ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_TRUE(is_frozen(box));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  bool frozen = true;
  for (int i = 0; i < 1000 && frozen; ++i) {
    frozen = is_frozen(box);
    if (frozen) ::usleep(10000);
  }
  EXPECT_FALSE(frozen);
  EXPECT_EQ(run(box, "echo still > here && cat here"), "still\n");
}

TEST_F(DiskTest, AnInterruptedCopyIsEndedByTheNextWarden) {
  const Box box = *make_box("box", kSource);
  ASSERT_TRUE(jail::end_interrupted_copy(box.directory).ok()) << "nothing to do";
  auto frozen = sys::FrozenFilesystem::freeze(*filesystem_of(box));
  ASSERT_TRUE(frozen.ok());
  ASSERT_TRUE(jail::end_interrupted_copy(box.directory).ok());
  EXPECT_TRUE(is_frozen(box)) << "it is not a copy's";
  std::ofstream(home_ + "/boxes/box/disk.copying");
  ASSERT_TRUE(jail::end_interrupted_copy(box.directory).ok());
  EXPECT_FALSE(is_frozen(box));
  EXPECT_FALSE(fs::exists(home_ + "/boxes/box/disk.copying"));
}

TEST_F(DiskTest, NoRoomForACopy) {
  const Box box = *make_box("box", kSource);
  ASSERT_EQ(run(box, "head -c 30000000 /dev/urandom > big"), "");
  ::sync();
  ASSERT_TRUE(store_->begin(snapshot_id(1)).ok());
  const std::string place = home_ + "/snapshots/test/" + snapshot_id(1);
  // Too small from the start, then one that fills up underway.
  for (const char* size : {"size=20M", "size=46M"}) {
    ASSERT_EQ(::mount("small", place.c_str(), "tmpfs", 0, size), 0);
    if (std::string(size) == "size=46M") {
      std::ofstream(place + "/filler") << "";
    }
    const auto dir = *sys::open_trusted(place, O_RDONLY | O_DIRECTORY);
    auto copied = jail::copy_disk(box.directory, dir, "disk.img");
    if (std::string(size) == "size=20M") {
      ASSERT_FALSE(copied.ok());
      EXPECT_EQ(copied.error().code, Errc::resource_exhausted) << copied.error().message;
      EXPECT_FALSE(fs::exists(place + "/disk.img"));
    }
    EXPECT_FALSE(is_frozen(box));
    ASSERT_EQ(::umount2(place.c_str(), MNT_DETACH), 0);
  }
  EXPECT_EQ(run(box, "echo on > goes && cat goes"), "on\n");
}

TEST_F(DiskTest, SnapshotsAreListedAndRemovedWhenNothingLiesOverThem) {
  EXPECT_EQ(store_->list()->size(), 0u);
  EXPECT_EQ(store_->mark_of(snapshot_id(1)).error().code, Errc::not_found);
  EXPECT_EQ(store_->chain_of("../x").error().code, Errc::invalid_argument);
  const Box box = *make_box("box", kSource);
  ASSERT_EQ(run(box, "head -c 1000000 /dev/urandom > big"), "");
  ASSERT_TRUE(snapshot(box, snapshot_id(1)).ok());
  Box over = *make_box("over", kSource + 1, *store_->chain_of(snapshot_id(1)));
  ASSERT_TRUE(snapshot(over, snapshot_id(2)).ok());
  ASSERT_TRUE(store_->begin(snapshot_id(3)).ok());
  EXPECT_EQ(store_->begin(snapshot_id(3)).error().code, Errc::already_exists);

  auto list = store_->list();
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 3u);
  EXPECT_TRUE((*list)[0].whole && (*list)[1].whole && !(*list)[2].whole);
  EXPECT_GT((*list)[0].disk_bytes, 1000000u);
  EXPECT_LT((*list)[0].disk_bytes, 8000000u);
  EXPECT_EQ((*list)[1].mark.layers, (std::vector<LayerRef>{{snapshot_id(1), false}}));

  const auto boxes = *sys::open_trusted(home_ + "/boxes", O_RDONLY | O_DIRECTORY);
  auto used = jail::layers_of_sandboxes(boxes);
  ASSERT_TRUE(used.ok());
  EXPECT_EQ(store_->remove(snapshot_id(1), *used).error().code, Errc::failed_precondition);
  EXPECT_EQ(store_->remove(snapshot_id(1), {}).error().code, Errc::failed_precondition);
  EXPECT_TRUE(store_->remove(snapshot_id(2), *used).ok());
  EXPECT_TRUE(store_->remove(snapshot_id(3), *used).ok()) << "remains";
  EXPECT_EQ(store_->remove(snapshot_id(1), *used).error().code, Errc::failed_precondition);
  EXPECT_TRUE(store_->remove(snapshot_id(1), {}).ok());
  EXPECT_EQ(store_->remove(snapshot_id(1), {}).error().code, Errc::not_found);
  EXPECT_EQ(store_->list()->size(), 0u);

  // What a sandbox lies over must be known.
  std::ofstream(home_ + "/boxes/over/complete") << "rubbish";
  EXPECT_EQ(jail::layers_of_sandboxes(boxes).error().code, Errc::data_loss);
}

}  // namespace
}  // namespace atl::testing
