// Helpers of the tests of memory in files.
#pragma once

#include <string>
#include <vector>

#include "jail_fixture.h"

namespace atl::testing {

class MemoryTest : public JailTest {
 protected:
  // A warden; skips the test where memory cannot be written to files.
  void begin(std::vector<std::string> extra = {}) {
    auto started = start(std::move(extra));
    ASSERT_TRUE(started.ok()) << started.error().message;
    if (tools_.empty()) GTEST_SKIP() << "no CRIU: set ATOLL_TOOLS to the directory above criu/";
  }

  // From its own memory, or from that of a snapshot.
  runtime::SandboxSpec revived(const SandboxId& id) const {
    runtime::SandboxSpec out = spec();
    out.id = id;
    out.disk = runtime::Disk::kept;
    out.memory = runtime::Memory::kept;
    return out;
  }
  runtime::SandboxSpec copy_of(const runtime::SnapshotId& snapshot) const {
    runtime::SandboxSpec out = spec();
    out.snapshot = snapshot;
    out.memory = runtime::Memory::snapshot;
    return out;
  }

  Result<runtime::Written> freeze_and_dump(const SandboxId& id) {
    ATOLL_TRY(await(runtime_->freeze(id)));
    return await(runtime_->dump(id));
  }
  Result<runtime::Created> revive(const SandboxId& id) {
    return await(runtime_->create(revived(id)));
  }

  // Starts a process that keeps a number in its memory: `count` makes it one more and tells it.
  void start_counter(const SandboxId& id) {
    EXPECT_EQ(
        inside(id,
               "mkfifo /tmp/ask /tmp/answer; (exec > /dev/null 2>&1; n=0; while read x < /tmp/ask; "
               "do n=$((n+1)); echo $n > /tmp/answer; done) & echo $! > /tmp/counter")
            .code,
        0);
  }
  std::string count(const SandboxId& id) {
    return inside(id, "echo x > /tmp/ask; cat /tmp/answer").output;
  }

  std::string directory(const SandboxId& id) const { return home_ + "/sandboxes/test/" + id.str(); }
};

}  // namespace atl::testing
