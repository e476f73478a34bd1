#include "snapshot/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "snapshot/criu.h"

namespace atl::snapshot {
namespace {

using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.host = {"6.18.44-fc", "x86_64", "4.2.1", {"avx", "sse4_2"}};
  manifest.facts = {{"template", "base"}, {"agent", "0a1b"}};
  manifest.id_count = 65536;
  manifest.memory_bytes = 110247936;
  manifest.mounts = {"/dev", "/run/atoll"};
  manifest.kept_files = {{"file[54:1]", "/usr/lib/x.so", 4096}};
  manifest.images = {{"files.img", {1234, 0xdeadbeef}}, {"pages-1.img", {110247936, 1}}};
  return manifest;
}

TEST(Checksum, Castagnoli) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST(Checksum, MappedOrReadIsTheSame) {
  sys::UniqueFd file(::memfd_create("sum", MFD_CLOEXEC));
  ASSERT_TRUE(file);
  std::string text;
  for (int i = 0; i < 100'003; ++i) text += char(i * 7 + i / 251);
  for (const std::size_t size : {0u, 1u, 4095u, 4096u, 100'003u}) {
    ASSERT_EQ(::ftruncate(file.get(), 0), 0);
    ASSERT_EQ(::pwrite(file.get(), text.data(), size, 0), ssize_t(size));
    auto read = sum_of(file);
    auto mapped = sum_of_mapped(file, size);
    ASSERT_TRUE(read && mapped);
    EXPECT_EQ(*mapped, *read);
    EXPECT_EQ(mapped->size, size);
  }
  // Beyond one window, most of it a hole.
  constexpr std::uint64_t kLarge = (64u << 20) + 5;
  ASSERT_EQ(::ftruncate(file.get(), off_t(kLarge)), 0);
  EXPECT_EQ(*sum_of_mapped(file, kLarge), *sum_of(file));
}

TEST(Manifest, ComesBack) {
  auto again = manifest_from_text(to_text(example()));
  ASSERT_TRUE(again);
  EXPECT_EQ(to_text(*again), to_text(example()));
  EXPECT_EQ(again->images.at("files.img").crc, 0xdeadbeefu);
  EXPECT_EQ(again->kept_files.at(0).path, "/usr/lib/x.so");
}

TEST(Manifest, AnyDamageIsSeen) {
  const std::string text = to_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto cut = manifest_from_text(text.substr(0, i));
    ASSERT_FALSE(cut) << i;
    EXPECT_EQ(cut.error().code, Errc::data_loss);
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_FALSE(manifest_from_text(changed)) << i;
  }
  EXPECT_FALSE(manifest_from_text(text + " "));
}

TEST(Manifest, AnotherVersionIsAnotherError) {
  std::string body = R"({"version":2})";
  char sum[9];
  std::snprintf(sum, sizeof(sum), "%08x", crc32c(body));
  auto read =
      manifest_from_text(R"({"crc32c":")" + std::string(sum) + R"(","dump":)" + body + "}\n");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::failed_precondition);
  body = R"({"version":1,"host":7})";
  std::snprintf(sum, sizeof(sum), "%08x", crc32c(body));
  read = manifest_from_text(R"({"crc32c":")" + std::string(sum) + R"(","dump":)" + body + "}\n");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::data_loss);
}

TEST(Manifest, Hosts) {
  const Manifest manifest = example();
  Host here = manifest.host;
  here.kernel = "6.18.50";
  here.criu = "4.2.2";
  here.cpu_features = {"avx", "avx512f", "sse4_2"};
  EXPECT_TRUE(check_host(manifest, here));
  for (const auto& change : std::vector<std::function<void(Host&)>>{
           [](Host& host) { host.kernel = "6.19.1"; }, [](Host& host) { host.kernel = "6.1.8"; },
           [](Host& host) { host.architecture = "aarch64"; }, [](Host& host) { host.criu = "4.3"; },
           [](Host& host) { host.cpu_features = {"avx"}; }}) {
    Host other = here;
    change(other);
    auto checked = check_host(manifest, other);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, Errc::failed_precondition);
  }
}

TEST(Manifest, FactsAreEqualOrNamed) {
  const Manifest manifest = example();
  EXPECT_TRUE(check_facts(manifest, manifest.facts));
  EXPECT_THAT(check_facts(manifest, {{"template", "base"}, {"agent", "ffff"}}).error().message,
              HasSubstr("agent"));
  EXPECT_THAT(check_facts(manifest, {{"template", "base"}}).error().message, HasSubstr("agent"));
  Facts more = manifest.facts;
  more["kernels"] = "1";
  EXPECT_THAT(check_facts(manifest, more).error().message, HasSubstr("kernels"));
}

bool has_pair(const std::vector<std::string>& words, const std::string& a, const std::string& b) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == a && words[i + 1] == b) return true;
  }
  return false;
}

TEST(Criu, Arguments) {
  const auto dump = dump_arguments({42, "/images", "/cg/x", {"/dev"}, {"file[54:1]"}});
  EXPECT_EQ(dump.front(), "dump");
  EXPECT_TRUE(has_pair(dump, "-t", "42"));
  EXPECT_TRUE(has_pair(dump, "--external", "mnt[/dev]:/dev"));
  EXPECT_TRUE(has_pair(dump, "--external", "file[54:1]"));
  EXPECT_TRUE(has_pair(dump, "--freeze-cgroup", "/cg/x"));
  EXPECT_THAT(dump, testing::Contains("--leave-running"));
  const auto restore = restore_arguments({"/run/images",
                                          "/run/work",
                                          "/run/root",
                                          "/run/hook",
                                          {{"/dev", "/run/mount-0"}},
                                          {{10, "file[54:1]"}}});
  EXPECT_TRUE(has_pair(restore, "--external", "mnt[/dev]:/run/mount-0"));
  EXPECT_TRUE(has_pair(restore, "--inherit-fd", "fd[10]:file[54:1]"));
  EXPECT_TRUE(has_pair(restore, "--root", "/run/root"));
  const auto line = command_line("/p", "/run/preload.so", {"dump"});
  EXPECT_TRUE(has_pair(line, "--preload", "/run/preload.so"));
  EXPECT_TRUE(has_pair(line, "/p/usr/sbin/criu", "dump"));
}

TEST(Criu, FirstComplaint) {
  EXPECT_EQ(first_complaint(""), "");
  EXPECT_EQ(first_complaint(
                "(00.02) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: x\n"
                "(00.03) Warn (x): y\n"
                "(00.03)      1: Error (criu/files-ext.c:96): Can't dump \x1b[31mfile\n"
                "(00.04) Error (criu/cr-dump.c:1975): Dumping FAILED.\n"),
            "Can't dump ?[31mfile");
  EXPECT_LE(first_complaint("Error (a): " + std::string(5000, 'x')).size(), 300u);
  EXPECT_TRUE(tells_of_no_space("Error (x): Can't write: No space left on device\n"));
  EXPECT_FALSE(tells_of_no_space("Error (x): Can't write\n"));
}

}  // namespace
}  // namespace atl::snapshot
