// The memory of sandboxes in files: dumped and brought back, cancelled, copied, refused.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "memory_fixture.h"

namespace atl::testing {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;

using JailMemory = MemoryTest;

// What a process inside can tell of its surroundings, as far as it must not change.
constexpr const char* kSurroundings =
    "cut -d' ' -f5,6 /proc/self/mountinfo | sort; grep -E "
    "'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:|Seccomp_filters|Uid|Gid|Groups' /proc/1/status;"
    "cat /proc/self/uid_map /proc/self/gid_map /proc/1/oom_score_adj /proc/self/cgroup | sort -u;"
    "cat /proc/sys/kernel/random/boot_id; hostname; ip -br addr 2>/dev/null | tr -s ' ';"
    "ip route 2>/dev/null; cat /proc/sys/net/ipv4/ping_group_range /proc/sys/net/mptcp/enabled;"
    "cat /proc/sys/net/ipv6/conf/eth0/disable_ipv6; stat -c '%n %a %u %g' /run/atoll /run/atoll/*;"
    "cat /proc/1/limits; readlink /proc/1/exe";

TEST_F(JailMemory, SupportIsToldOnceAndForAll) {
  ASSERT_NO_FATAL_FAILURE(begin());
  for (int i = 0; i < 2; ++i) {
    auto support = await(runtime_->memory_support());
    ASSERT_TRUE(support.ok()) << support.error().message;
    EXPECT_TRUE(support->durable) << support->reason;
    EXPECT_NE(support->version, "");
  }
  // Once a boot: the next warden knows.
  stop();
  ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", "probe"}));
  auto known = await(runtime_->memory_support());
  ASSERT_TRUE(known.ok());
  EXPECT_TRUE(known->durable) << known->reason;
  stop();
  tools_ = "/nonexistent";
  ASSERT_NO_FATAL_FAILURE(begin());
  auto support = await(runtime_->memory_support());
  ASSERT_TRUE(support.ok());
  EXPECT_FALSE(support->durable);
  EXPECT_NE(support->reason, "");
  // The sandbox is none the worse for a dump that cannot be.
  const SandboxId id = create();
  auto written = freeze_and_dump(id);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(condition(id), Condition::frozen);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(inside(id, "echo well").output, "well\n");
}

TEST_F(JailMemory, ProcessesGoOnWhereTheyWere) {
  server_gid_ = 4242;
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  EXPECT_EQ(count(id), "1\n");
  EXPECT_EQ(inside(id, "echo on-disk > /home/user/f; echo in-memory > /dev/shm/f").code, 0);
  const std::string surroundings = inside(id, kSurroundings).output;
  const std::string pids = inside(id, "cat /tmp/counter").output;

  auto written = freeze_and_dump(id);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_GT(written->memory_bytes, 0u);
  EXPECT_EQ(condition(id), Condition::dumped);
  EXPECT_EQ(cgroup_dir("pids", id), "");
  const std::string image = directory(id) + "/disk.img";
  EXPECT_EQ(host("flock -n " + image + " true; echo $?"), "0\n") << "the disk is at rest";
  EXPECT_EQ(host("e2fsck -fn " + image + " > /dev/null 2>&1; echo $?"), "0\n");
  EXPECT_EQ(host("stat -c %a " + directory(id) + "/memory"), "700\n");
  EXPECT_EQ(host("ls -d " + directory(id) + "/memory.*"), directory(id) + "/memory.lock\n");
  EXPECT_EQ(await(runtime_->thaw(id)).error().code, Errc::failed_precondition);
  EXPECT_EQ(await(runtime_->dump(id)).error().code, Errc::failed_precondition);
  EXPECT_TRUE(await(runtime_->cancel_dump(id)).ok());

  auto created = revive(id);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(condition(id), Condition::running);
  EXPECT_EQ(count(id), "2\n");
  EXPECT_EQ(inside(id, "cat /home/user/f /dev/shm/f; cat /tmp/counter").output,
            "on-disk\nin-memory\n" + pids);
  EXPECT_EQ(inside(id, kSurroundings).output, surroundings);
  // The image is removed after the answer.
  const auto memory_files = [&] { return host("ls -d " + directory(id) + "/memory*"); };
  const std::string only_lock = directory(id) + "/memory.lock\n";
  for (int i = 0; i < 1000 && memory_files() != only_lock; ++i) pause_for(milliseconds(10));
  EXPECT_EQ(memory_files(), only_lock);
  // Its end is noticed, and it leaves no zombie.
  const int pid = init_pid(id);
  destroy(id);
  EXPECT_NE(::access(("/proc/" + std::to_string(pid)).c_str(), F_OK), 0);
}

TEST_F(JailMemory, AgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  for (int i = 1; i <= 6; ++i) {
    EXPECT_EQ(count(id), std::to_string(i) + "\n");
    auto written = freeze_and_dump(id);
    ASSERT_TRUE(written.ok()) << written.error().message;
    // Every other time by another warden.
    if (i % 2 == 0) {
      kill_warden();
      ASSERT_NO_FATAL_FAILURE(begin());
      ASSERT_EQ(condition(id), Condition::dumped);
    }
    auto created = revive(id);
    ASSERT_TRUE(created.ok()) << i << ": " << created.error().message;
    EXPECT_EQ(inside(id, "echo x >> /tmp/f; wc -l < /tmp/f").output, std::to_string(i) + "\n");
  }
}

TEST_F(JailMemory, ARevivedOneIsAnOrdinarySandbox) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  ASSERT_TRUE(revive(id).ok());
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  EXPECT_EQ(condition(id), Condition::frozen);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(count(id), "1\n");
  EXPECT_GT(await(runtime_->usage(id))->memory_bytes, 0u);
  // The next warden finds it; its own end is told.
  kill_warden();
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(condition(id), Condition::running);
  EXPECT_EQ(count(id), "2\n");
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(condition(id), Condition::dead);
  runtime::SandboxSpec boot = revived(id);
  boot.memory = runtime::Memory::none;
  create(boot);
  EXPECT_EQ(inside(id, "kill -0 $(cat /tmp/counter) 2> /dev/null; echo $?").output, "1\n");
}

TEST_F(JailMemory, ItsDeathIsToldWithItsStatus) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  ASSERT_TRUE(freeze_and_dump(id).ok());
  ASSERT_TRUE(revive(id).ok());
  std::optional<runtime::ExitNotice> notice;
  runtime_->on_exit([&](runtime::ExitNotice told) { notice = std::move(told); });
  pause_for(milliseconds(10));
  ASSERT_EQ(::kill(init_pid(id), SIGKILL), 0);
  for (int i = 0; i < 2000 && !notice; ++i) pause_for(milliseconds(10));
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->id, id);
  EXPECT_TRUE(notice->signaled);
  EXPECT_EQ(notice->status, SIGKILL);
  EXPECT_EQ(condition(id), Condition::dead);
}

TEST_F(JailMemory, KillAndBootMakeTheMemoryVoid) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "echo x > /home/user/f").code, 0);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  runtime::SandboxSpec boot = revived(id);
  boot.memory = runtime::Memory::none;
  create(boot);
  EXPECT_EQ(inside(id, "cat /home/user/f").output, "x\n");
  EXPECT_EQ(condition(id), Condition::running);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(condition(id), Condition::dead);
  EXPECT_EQ(revive(id).error().code, Errc::not_found);
  EXPECT_EQ(host("ls -d " + directory(id) + "/memory*"), directory(id) + "/memory.lock\n");
}

// Holds enough memory that writing it takes a while. A sleep may end early when a dump stops it.
constexpr const char* kMuch =
    "(exec perl -e '$x = \"abcdefgh\" x (40 << 20); open F, \">/tmp/full\"; close F; sleep 1000 "
    "while 1' "
    "> /dev/null 2>&1) & while ! test -e /tmp/full; do sleep 0.05; done";

TEST_F(JailMemory, ADumpIsCancelled) {
  ASSERT_NO_FATAL_FAILURE(begin());
  runtime::SandboxSpec wanted = spec();
  wanted.limits.memory_bytes = 2ull << 30;
  const SandboxId id = create(wanted);
  ASSERT_EQ(inside(id, kMuch).code, 0);
  start_counter(id);
  int aborted = 0;
  for (const int pause : {0, 20, 60, 120, 200}) {
    ASSERT_TRUE(await(runtime_->freeze(id)).ok());
    std::optional<Result<runtime::Written>> written;
    net::asio::co_spawn(
        io_,
        [&]() -> net::Task<void> {
          auto dumping = runtime_->dump(id);
          written.emplace(co_await std::move(dumping));
        },
        net::asio::detached);
    pause_for(milliseconds(pause));
    auto thawed = await(runtime_->thaw(id));
    ASSERT_FALSE(thawed.ok()) << "it is being written, or dumped";
    EXPECT_EQ(thawed.error().code, Errc::failed_precondition);
    auto cancelled = await(runtime_->cancel_dump(id));
    ASSERT_TRUE(cancelled.ok()) << cancelled.error().message;
    ASSERT_TRUE(written.has_value()) << "the dump has ended when its cancel is answered";
    if (!written->ok()) {
      ++aborted;
      EXPECT_EQ(written->error().code, Errc::aborted) << written->error().message;
      EXPECT_EQ(condition(id), Condition::frozen);
      EXPECT_EQ(host("ls -d " + directory(id) + "/memory*"), directory(id) + "/memory.lock\n");
      ASSERT_TRUE(await(runtime_->thaw(id)).ok());
    } else {
      runtime::SandboxSpec again = revived(id);
      again.limits = wanted.limits;
      ASSERT_TRUE(await(runtime_->create(again)).ok());
    }
    EXPECT_NE(count(id), "");
  }
  EXPECT_GE(aborted, 2);
  EXPECT_EQ(count(id), "6\n");
  EXPECT_EQ(inside(id, "pgrep -c perl").output, "1\n");
}

TEST_F(JailMemory, KillAndDestroyDuringADump) {
  ASSERT_NO_FATAL_FAILURE(begin());
  runtime::SandboxSpec wanted = spec();
  wanted.limits.memory_bytes = 2ull << 30;
  for (const bool destroying : {false, true}) {
    wanted.id = SandboxId::generate();
    const SandboxId id = create(wanted);
    ASSERT_EQ(inside(id, kMuch).code, 0);
    ASSERT_TRUE(await(runtime_->freeze(id)).ok());
    std::optional<Result<runtime::Written>> written;
    net::asio::co_spawn(
        io_,
        [&]() -> net::Task<void> {
          auto dumping = runtime_->dump(id);
          written.emplace(co_await std::move(dumping));
        },
        net::asio::detached);
    pause_for(milliseconds(80));
    auto ended = destroying ? await(runtime_->destroy(id)) : await(runtime_->kill(id));
    ASSERT_TRUE(ended.ok()) << ended.error().message;
    ASSERT_TRUE(written.has_value());
    if (!destroying) {
      EXPECT_EQ(condition(id), Condition::dead);
    } else {
      EXPECT_EQ(condition(id), std::nullopt);
    }
  }
}

TEST_F(JailMemory, ADamagedImageIsRefusedAndStays) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  const std::string memory = directory(id) + "/memory";
  ASSERT_EQ(host("cp -a " + memory + " " + home_ + "/good"), "");
  const auto refused = [&](const std::string& harm, Errc expected) {
    EXPECT_EQ(host(harm), "");
    auto created = revive(id);
    ASSERT_FALSE(created.ok()) << harm;
    EXPECT_EQ(created.error().code, expected) << harm << ": " << created.error().message;
    EXPECT_EQ(condition(id), Condition::dumped) << harm;
    EXPECT_EQ(cgroup_dir("pids", id), "");
    EXPECT_EQ(host("rm -rf " + memory + "; cp -a " + home_ + "/good " + memory), "");
  };
  const std::string pages = "$(ls -S " + memory + "/images/pages-*.img | head -1)";
  refused("printf x | dd of=" + pages + " bs=1 seek=4096 conv=notrunc status=none",
          Errc::data_loss);
  refused("truncate -s -1 " + pages, Errc::data_loss);
  refused("rm " + memory + "/images/inventory.img", Errc::data_loss);
  refused("printf '{' > " + memory + "/manifest.json", Errc::data_loss);
  ASSERT_TRUE(revive(id).ok());
  EXPECT_EQ(count(id), "1\n");
  EXPECT_EQ(host("rm -r " + home_ + "/good"), "");
}

TEST_F(JailMemory, AnImageThatDoesNotFitItsLimitIsRefused) {
  ASSERT_NO_FATAL_FAILURE(begin());
  runtime::SandboxSpec wanted = spec();
  wanted.limits.memory_bytes = 2ull << 30;
  const SandboxId id = create(wanted);
  ASSERT_EQ(inside(id, kMuch).code, 0);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  runtime::SandboxSpec small = revived(id);
  small.limits.memory_bytes = 256ull << 20;
  auto created = await(runtime_->create(small));
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, Errc::resource_exhausted) << created.error().message;
  EXPECT_EQ(condition(id), Condition::dumped);
  small.limits.memory_bytes = 2ull << 30;
  ASSERT_TRUE(await(runtime_->create(small)).ok());
  EXPECT_EQ(inside(id, "pgrep -c perl").output, "1\n");
}

TEST_F(JailMemory, AFullDiskLeavesItFrozen) {
  ASSERT_EQ(host("mount -t tmpfs -o size=120m,mode=755 atoll-test " + home_), "");
  ASSERT_NO_FATAL_FAILURE(begin());
  runtime::SandboxSpec wanted = spec();
  wanted.limits.memory_bytes = 2ull << 30;
  const SandboxId id = create(wanted);
  ASSERT_EQ(inside(id, kMuch).code, 0);
  start_counter(id);
  auto written = freeze_and_dump(id);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::resource_exhausted) << written.error().message;
  EXPECT_EQ(condition(id), Condition::frozen);
  EXPECT_EQ(host("ls -d " + directory(id) + "/memory*"), directory(id) + "/memory.lock\n");
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(count(id), "1\n");
  destroy(id);
  stop();
  EXPECT_EQ(host("umount " + home_), "");
}

TEST_F(JailMemory, CopiesOfASnapshotAreIndependent) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  EXPECT_EQ(count(id), "1\n");
  EXPECT_EQ(inside(id, "echo first > /home/user/f; chown 1000:1000 /home/user/f").code, 0);
  const std::string ids = inside(id, "cat /proc/self/uid_map").output;
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  auto written = await(runtime_->snapshot(id, snapshot));
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_GT(written->memory_bytes, 0u);
  EXPECT_GT(written->disk_bytes, 0u);
  EXPECT_EQ(condition(id), Condition::running);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(count(id), "2\n") << "the source goes on";
  EXPECT_EQ(inside(id, "echo later > /home/user/f").code, 0);
  auto list = await(runtime_->list_snapshots());
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().id, snapshot);
  EXPECT_TRUE(list->front().whole);

  std::vector<SandboxId> copies;
  for (int i = 0; i < 2; ++i) {
    runtime::SandboxSpec wanted = copy_of(snapshot);
    wanted.hostname = "copy" + std::to_string(i);
    copies.push_back(wanted.id);
    auto created = await(runtime_->create(wanted));
    ASSERT_TRUE(created.ok()) << created.error().message;
    EXPECT_EQ(inside(wanted.id, "hostname").output, wanted.hostname + "\n");
    EXPECT_NE(inside(wanted.id, "cat /proc/self/uid_map").output, ids);
    EXPECT_EQ(inside(wanted.id, "cat /home/user/f; stat -c %u /home/user/f").output,
              "first\n1000\n");
    EXPECT_EQ(inside(wanted.id, "echo mine > /home/user/f; rm /etc/issue; cat /home/user/f").output,
              "mine\n");
    for (int n = 2; n < 4 + i; ++n) EXPECT_EQ(count(wanted.id), std::to_string(n) + "\n");
  }
  EXPECT_EQ(inside(id, "cat /home/user/f; ls /etc/issue").output, "later\n/etc/issue\n");
  EXPECT_EQ(await(runtime_->remove_snapshot(snapshot)).error().code, Errc::failed_precondition);

  // A copy is dumped and revived over its layers; and copied itself.
  auto dumped = freeze_and_dump(copies[1]);
  ASSERT_TRUE(dumped.ok()) << dumped.error().message;
  auto again = revive(copies[1]);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(count(copies[1]), "5\n");
  EXPECT_EQ(inside(copies[1], "cat /home/user/f; ls /etc/issue 2>/dev/null").output, "mine\n");
  ASSERT_TRUE(await(runtime_->freeze(copies[1])).ok());
  const runtime::SnapshotId second = runtime::new_snapshot_id();
  ASSERT_TRUE(await(runtime_->snapshot(copies[1], second)).ok());
  const runtime::SandboxSpec grandchild = copy_of(second);
  auto created = await(runtime_->create(grandchild));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(grandchild.id), "6\n");
  EXPECT_EQ(
      inside(grandchild.id, "cat /home/user/f; stat -c %u /home/user; ls /etc/issue 2>/dev/null")
          .output,
      "mine\n1000\n");
  for (const SandboxId& gone : {copies[0], copies[1], grandchild.id}) destroy(gone);
  ASSERT_TRUE(await(runtime_->remove_snapshot(second)).ok());
  ASSERT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
  EXPECT_EQ(await(runtime_->remove_snapshot(snapshot)).error().code, Errc::not_found);
  EXPECT_TRUE(await(runtime_->list_snapshots())->empty());
}

// Its socket is bound to an address that a copy does not have.
TEST_F(JailMemory, ConnectionsToOutsideKeepNobodyFromComingBack) {
  ASSERT_NO_FATAL_FAILURE(begin());
  auto sockets = await(runtime_->egress_sockets());
  ASSERT_TRUE(sockets.ok());
  ASSERT_GE(sockets->dns_tcp, 0);
  const SandboxId id = create();
  ASSERT_EQ(inside(id,
                   "setsid bash -c 'exec 3<>/dev/tcp/198.18.0.1/53 && echo $$ > /tmp/tcp; while :; "
                   "do sleep 1; done' > /dev/null 2>&1 & for i in $(seq 100); do test -e /tmp/tcp "
                   "&& exit 0; sleep 0.05; done; exit 1")
                .code,
            0);
  const char* open =
      "readlink /proc/$(cat /tmp/tcp)/fd/3 | cut -d: -f1; grep -c '/16 host LOCAL' "
      "/proc/net/fib_trie";
  EXPECT_EQ(inside(id, open).output, "socket\n0\n");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  auto written = await(runtime_->snapshot(id, snapshot));
  ASSERT_TRUE(written.ok()) << written.error().message;
  const runtime::SandboxSpec wanted = copy_of(snapshot);
  auto created = await(runtime_->create(wanted));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(inside(wanted.id, open).output, "socket\n0\n");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  auto dumped = await(runtime_->dump(id));
  ASSERT_TRUE(dumped.ok()) << dumped.error().message;
  ASSERT_TRUE(revive(id).ok());
  EXPECT_EQ(inside(id, open).output, "socket\n0\n");
  for (int fd : {sockets->dns_udp, sockets->dns_tcp, sockets->proxy}) ::close(fd);
  destroy(wanted.id);
  ASSERT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
}

TEST_F(JailMemory, BootsOverTheDiskOfASnapshot) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "echo x > /home/user/f; mkdir /srv/d; chmod 711 /; rm /etc/issue").code, 0);
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  auto written = await(runtime_->snapshot_disk(id, snapshot));
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(written->memory_bytes, 0u);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  runtime::SandboxSpec wanted = copy_of(snapshot);
  EXPECT_EQ(await(runtime_->create(wanted)).error().code, Errc::not_found) << "it has no memory";
  wanted.memory = runtime::Memory::none;
  create(wanted);
  EXPECT_EQ(
      inside(wanted.id, "cat /home/user/f; stat -c '%a %u' / /srv/d; ls /etc/issue 2>&1").output,
      "x\n711 0\n755 0\nls: cannot access '/etc/issue': No such file or directory\n");
  ASSERT_TRUE(await(runtime_->kill(wanted.id)).ok());
  wanted.disk = runtime::Disk::kept;
  wanted.snapshot.clear();
  create(wanted);
  EXPECT_EQ(inside(wanted.id, "cat /home/user/f").output, "x\n");
  destroy(wanted.id);
  ASSERT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
}

TEST_F(JailMemory, ASandboxIsPutBackToASnapshot) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  EXPECT_EQ(count(id), "1\n");
  EXPECT_EQ(inside(id, "echo early > /home/user/f").code, 0);
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  ASSERT_TRUE(await(runtime_->snapshot(id, snapshot)).ok());
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(count(id), "2\n");
  EXPECT_EQ(inside(id, "echo late > /home/user/f").code, 0);

  runtime::SandboxSpec back = copy_of(snapshot);
  back.id = id;
  EXPECT_EQ(await(runtime_->create(back)).error().code, Errc::already_exists);
  back.replace = true;
  EXPECT_EQ(await(runtime_->create(back)).error().code, Errc::failed_precondition) << "it runs";
  EXPECT_EQ(count(id), "3\n");
  ASSERT_TRUE(freeze_and_dump(id).ok());
  // One that cannot be is as if it had not been.
  runtime::SandboxSpec impossible = back;
  impossible.snapshot = runtime::new_snapshot_id();
  EXPECT_EQ(await(runtime_->create(impossible)).error().code, Errc::not_found);
  EXPECT_EQ(condition(id), Condition::dumped);
  ASSERT_TRUE(revive(id).ok());
  EXPECT_EQ(count(id), "4\n");
  EXPECT_EQ(inside(id, "cat /home/user/f").output, "late\n");
  ASSERT_TRUE(freeze_and_dump(id).ok());

  auto created = await(runtime_->create(back));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(id), "2\n");
  EXPECT_EQ(inside(id, "cat /home/user/f").output, "early\n");
  EXPECT_EQ(host("ls " + home_ + "/sandboxes/test"), id.str() + "\n");
  EXPECT_EQ(host("grep -l " + id.str() + " /run/atoll/ranges/* | wc -l"), "1\n");
  destroy(id);
  ASSERT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
}

TEST_F(JailMemory, ErrorsAreTyped) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId nobody = SandboxId::generate();
  EXPECT_EQ(await(runtime_->dump(nobody)).error().code, Errc::not_found);
  EXPECT_EQ(await(runtime_->snapshot(nobody, runtime::new_snapshot_id())).error().code,
            Errc::not_found);
  EXPECT_EQ(await(runtime_->remove_snapshot(runtime::new_snapshot_id())).error().code,
            Errc::not_found);
  EXPECT_EQ(await(runtime_->remove_snapshot("../../etc")).error().code, Errc::invalid_argument);
  const SandboxId id = create();
  EXPECT_EQ(await(runtime_->dump(id)).error().code, Errc::failed_precondition) << "it runs";
  EXPECT_EQ(await(runtime_->snapshot(id, runtime::new_snapshot_id())).error().code,
            Errc::failed_precondition);
  EXPECT_EQ(revive(id).error().code, Errc::failed_precondition) << "it runs";
  EXPECT_EQ(await(runtime_->create(copy_of(runtime::new_snapshot_id()))).error().code,
            Errc::not_found);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(revive(id).error().code, Errc::not_found) << "it has no memory";
  EXPECT_EQ(await(runtime_->dump(id)).error().code, Errc::failed_precondition) << "it is dead";
}

}  // namespace
}  // namespace atl::testing
