// Helpers of the tests of disks: boxes, which are a disk of their own mounted as the upper layer
// over snapshots and a small template, without any jail. Needs root; skips otherwise.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/jail/disk.h"
#include "runtime/jail/layers.h"
#include "runtime/jail/snapshot_store.h"
#include "sys/mounts.h"

namespace atl::testing {

inline constexpr std::uint64_t kDiskBytes = 64ull << 20;

struct Box {
  std::string name;
  std::uint32_t slot = 0;
  std::string path;         // its root, mounted
  sys::UniqueFd directory;  // holds disk.img
  std::vector<jail::LayerRef> layers;
};

class DiskTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A new box over `layers` and the template.
  Result<Box> make_box(const std::string& name, std::uint32_t slot,
                       std::vector<jail::LayerRef> layers = {});
  // Unmounts it; its disk stays.
  void close(Box& box);
  // Mounts it again.
  Result<void> reopen(Box& box);
  // Runs a shell command in the root of a box as its root user; its output, or "exit N: output".
  std::string run(const Box& box, const std::string& command);
  // A snapshot of its disk.
  Result<void> snapshot(const Box& box, const std::string& id);

  // Everything there is to see of a tree: a line per path with type, mode, owner (as the box
  // numbers them), size, times, link target, content, user attributes and which paths are the same
  // file.
  enum class Links { told, not_told };
  static std::map<std::string, std::string> describe(const Box& box, Links links = Links::told);

  std::string home_;
  sys::UniqueFd home_fd_;
  std::optional<jail::SnapshotStore> store_;
  std::optional<jail::Disks> disks_;
  std::unique_ptr<jail::Layers> layers_;

 private:
  Result<void> mount_box(Box& box, jail::Disk disk, bool fresh);
  void make_template();
};

std::string snapshot_id(int number);
// Where two descriptions differ; empty if nowhere.
std::string difference(const std::map<std::string, std::string>& left,
                       const std::map<std::string, std::string>& right);

}  // namespace atl::testing
