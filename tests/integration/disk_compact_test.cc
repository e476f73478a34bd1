// Chains of layers made one: what is seen through the flat disk is what was seen through the chain.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "disk_fixture.h"
#include "runtime/jail/compact.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/ranges.h"
#include "sys/files.h"
#include "sys/self.h"

namespace atl::testing {
namespace {

using jail::LayerRef;
namespace fs = std::filesystem;

constexpr std::uint32_t kFirst = 21001;

class CompactTest : public DiskTest {
 protected:
  // Does each of these in a sandbox made from a snapshot of the one before; the last of them.
  Box generations(const std::vector<std::string>& steps) {
    Box box = *make_box("gen0", kFirst);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(run(box, steps[i]), "") << steps[i];
      last_ = snapshot_id(int(i) + 1);
      auto made = snapshot(box, last_);
      EXPECT_TRUE(made.ok()) << made.error().message;
      if (i + 1 == steps.size()) break;
      auto next = make_box("gen" + std::to_string(i + 1), kFirst + std::uint32_t(i) + 1,
                           *store_->chain_of(last_));
      EXPECT_TRUE(next.ok()) << next.error().message;
      box = std::move(*next);
    }
    return box;
  }

  // Flattens the last snapshot and compares with what `box` shows.
  void expect_same_when_flat(const Box& box) {
    const auto before = describe(box);
    auto made = jail::compact(*store_, *layers_, last_, 1);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(*made);
    const auto chain = *store_->chain_of(last_);
    EXPECT_EQ(chain, (std::vector<LayerRef>{{last_, true}}));
    auto flat = make_box("flat", kFirst + 500, chain);
    ASSERT_TRUE(flat.ok()) << flat.error().message;
    EXPECT_EQ(difference(before, describe(*flat)), "");
    EXPECT_FALSE(*jail::compact(*store_, *layers_, last_, 1)) << "once is enough";
    // As a layer it behaves like any other.
    EXPECT_EQ(run(*flat, "mkdir -p x && for f in *; do [ $f = x ] || mv $f x/$f; done"), "");
    ASSERT_TRUE(snapshot(*flat, snapshot_id(900)).ok());
    auto over = make_box("over", kFirst + 501, *store_->chain_of(snapshot_id(900)));
    ASSERT_TRUE(over.ok()) << over.error().message;
    EXPECT_EQ(over->layers, (std::vector<LayerRef>{{snapshot_id(900), false}, {last_, true}}));
    // Names of one file in a layer below, of which some were moved, become files of their own.
    EXPECT_EQ(difference(describe(*flat, Links::not_told), describe(*over, Links::not_told)), "");
  }

  std::string last_;
};

TEST_F(CompactTest, WhiteoutsAndOpaqueDirectories) {
  const Box box = generations({
      "rm data/a && echo 1 > new && rm -r gone",
      "mkdir gone && echo 2 > gone/second && rm new && echo a > data/a",
      "rm data/a && rm -r data && mkdir data && echo only > data/only",
      "rm -r gone && echo now a file > gone",
      "rm gone && mkdir gone && echo 5 > gone/fifth && rm etc/conf etc/link",
  });
  expect_same_when_flat(box);
}

TEST_F(CompactTest, RedirectedDirectories) {
  const Box box = generations({
      "mv tools t1 && mv data/deep/er er1",
      "mv t1 t2 && echo x > t2/bin/x && mkdir tools && echo fresh > tools/fresh",
      "mkdir in && mv t2 in/t3 && mv er1 in/er2 && mv data etc/data",
      "mv in/t3/bin in/bin && mv in in2 && mv etc/data etc/d2",
      "mv in2/bin in2/t3/bin2 && rm in2/t3/bin2/x && mv etc etc2 && mv etc2/d2/deep deep2",
      "mkdir -p new/er && mv in2/er2 new/er/er3 && rm -r gone && mv etc2 gone",
  });
  EXPECT_EQ(run(box, "cat new/er/er3/file gone/conf; ls in2/t3/bin2"),
            "far downas delivered\nrun\n");
  expect_same_when_flat(box);
}

TEST_F(CompactTest, FilesWithAllThatBelongsToThem) {
  const Box box = generations({
      "echo one > one && ln one two && mkdir d && ln one d/three && chmod 6755 one",
      "mkfifo d/pipe && ln -s one link && ln -s /far/away d/dangling && truncate -s 5M d/holes && "
      "echo end >> d/holes && touch -d 2001-02-03T04:05:06.789 d/old && chmod 0 d/old",
      "echo a > private && chmod 600 private && mkdir -m 1777 sticky && mkdir -m 2750 sticky/group",
  });
  const std::string root = box.path;
  const uid_t base = jail::Ranges::first_id(box.slot);
  ASSERT_EQ(::lchown((root + "/link").c_str(), base + 1000, base + 1001), 0);
  ASSERT_EQ(::chown((root + "/private").c_str(), base + 33, base + 34), 0);
  ASSERT_EQ(::setxattr((root + "/private").c_str(), "user.note", "kept", 4, 0), 0);
  const std::string large(3000, 'v');
  ASSERT_EQ(::setxattr((root + "/private").c_str(), "user.large", large.data(), large.size(), 0),
            0);
  ASSERT_EQ(::setxattr((root + "/d").c_str(), "user.dir", "too", 3, 0), 0);
  last_ = snapshot_id(50);
  ASSERT_TRUE(snapshot(box, last_).ok());
  expect_same_when_flat(box);

  auto flat = make_box("again", kFirst + 502, *store_->chain_of(last_));
  struct stat info{};
  ASSERT_EQ(::stat((flat->path + "/d/holes").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 1 << 20) << "holes stay holes";
  ASSERT_EQ(::stat((flat->path + "/one").c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 3u);
  EXPECT_EQ(info.st_mode & 07777, 06755u);
}

// Random histories, of which only the result counts.
TEST_F(CompactTest, Random) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](unsigned n) { return unsigned(random() % n); };
  const auto dir = [&] {
    static const char* const names[] = {".",         "etc",  "data", "data/deep", "data/deep/er",
                                        "tools/bin", "gone", "p",    "p/q",       "tools"};
    return std::string(names[pick(10)]);
  };
  std::vector<std::string> steps;
  for (int generation = 0; generation < 9; ++generation) {
    std::string step;
    for (int i = 0; i < 6; ++i) {
      const std::string n = std::to_string(pick(6));
      // What cannot be done does no harm.
      switch (pick(6)) {
        case 0:
          step += "rm -rf " + dir() + "/" + n + " gone/old data/a;";
          break;
        case 1:
          step += "mkdir -p " + dir() + "/" + n + " p/q;";
          break;
        case 2:
          step += "mv -T " + dir() + " " + dir() + "/m" + n + " 2>/dev/null || :;";
          break;
        case 3:
          step += "(echo $$ > " + dir() + "/f" + n + ") 2>/dev/null || :;";
          break;
        case 4:
          step += "d=" + dir() + "; [ $d = . ] || { rm -rf $d; mkdir -p $d; };";
          break;
        default:
          step += "ln " + dir() + "/f" + n + " " + dir() + "/l" + n + " 2>/dev/null || :;";
      }
    }
    steps.push_back(step + "true");
  }
  const Box box = generations(steps);
  std::string history;
  for (const std::string& step : steps) history += step + "\n";
  SCOPED_TRACE(history);
  expect_same_when_flat(box);
}

TEST_F(CompactTest, OnlyLongChains) {
  const Box box = generations(std::vector<std::string>(jail::kMaxChain, "date +%N > stamp"));
  EXPECT_FALSE(*jail::compact(*store_, *layers_, last_));
  auto next = *make_box("next", kFirst + 100, *store_->chain_of(last_));
  EXPECT_EQ(run(next, "echo longer > stamp"), "");
  ASSERT_TRUE(snapshot(next, snapshot_id(50)).ok());
  EXPECT_EQ(store_->chain_of(snapshot_id(50))->size(), jail::kMaxChain + 1);
  EXPECT_TRUE(*jail::compact(*store_, *layers_, snapshot_id(50)));
  // A sandbox over the long chain goes on, and a snapshot of it lies over the flat disk.
  const auto flat = *store_->chain_of(snapshot_id(50));
  EXPECT_EQ(flat, (std::vector<LayerRef>{{snapshot_id(50), true}}));
  EXPECT_EQ(store_->shortened({{snapshot_id(60), false}, {snapshot_id(50), false}, {last_, false}}),
            (std::vector<LayerRef>{{snapshot_id(60), false}, {snapshot_id(50), true}}));

  // The layers below are let go once nobody needs the snapshot's own disk.
  const auto uses = [](const std::string& id) { return jail::UsedLayers{{id, false}}; };
  EXPECT_EQ(store_->remove(last_, {}).error().code, Errc::failed_precondition);
  EXPECT_FALSE(*store_->let_go(snapshot_id(50), uses(snapshot_id(50))));
  EXPECT_TRUE(*store_->let_go(snapshot_id(50), uses(last_)));
  EXPECT_TRUE(*store_->let_go(snapshot_id(50), {})) << "done is done";
  EXPECT_FALSE(*store_->let_go(last_, {})) << "it has no flat disk";
  EXPECT_EQ(*store_->chain_of(snapshot_id(50)), flat);
  EXPECT_EQ(store_->remove(last_, uses(last_)).error().code, Errc::failed_precondition);
  EXPECT_TRUE(store_->remove(last_, {}).ok());
  auto made = make_box("made", kFirst + 101, flat);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(run(*made, "cat stamp"), "longer\n");
}

TEST_F(CompactTest, AKilledOneLeavesNothing) {
  const Box box = generations({"head -c 20000000 /dev/urandom > big", "echo 2 > two"});
  const pid_t child = ::fork();
  if (child == 0) {
    if (!sys::unshare(CLONE_NEWNS) || !sys::make_all_private()) ::_exit(1);
    jail::Layers own(home_ + "/place");
    (void)jail::compact(*store_, own, last_, 1);
    ::_exit(0);
  }
  ::usleep(60000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto names = *sys::list_dir(*store_->directory(last_));
  for (const std::string& name : names)
    EXPECT_TRUE(name == "disk.img" || name == "complete" || name == "flat.img") << name;
  const auto again = jail::compact(*store_, *layers_, last_, 1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(store_->chain_of(last_)->front().flat, true);
}

}  // namespace
}  // namespace atl::testing
