#include "workspace/names.h"

#include <gtest/gtest.h>

#include "store/blobs/key.h"

namespace atl::workspace {
namespace {

TEST(Names, OfWorkspaces) {
  for (const char* good : {"a", "A-b_c.d", "0", "user.42"}) EXPECT_TRUE(check_name(good).ok());
  EXPECT_TRUE(check_name(std::string(64, 'a')).ok());
  for (const std::string bad : {"", ".", "..", ".a", "-a", "a/b", "a b", "ä", "a\n"})
    EXPECT_EQ(check_name(bad).error().code, Errc::invalid_argument) << bad;
  EXPECT_FALSE(check_name(std::string(65, 'a')).ok());
  EXPECT_FALSE(check_name(std::string_view("a\0b", 3)).ok());
}

TEST(Names, PathsAreNormalised) {
  EXPECT_EQ(*normalise_path("/a/b.txt"), "/a/b.txt");
  EXPECT_EQ(*normalise_path("a/b.txt"), "/a/b.txt");
  EXPECT_EQ(*normalise_path("//a///b.txt"), "/a/b.txt");
  EXPECT_EQ(*normalise_path("/a b/ü/報告~%2e%2e"), "/a b/ü/報告~%2e%2e");
  EXPECT_EQ(*normalise_path("/...x/.hidden"), "/...x/.hidden");
  EXPECT_EQ(*normalise_folder("/"), "/");
  EXPECT_EQ(*normalise_folder(""), "/");
  EXPECT_EQ(*normalise_folder("/a/b//"), "/a/b");
}

TEST(Names, BadPaths) {
  std::string deep;
  for (std::size_t i = 0; i <= kMaxPathDepth; ++i) deep += "/a";
  for (const std::string& bad :
       {std::string(), std::string("/"), std::string("//"), std::string("/.."),
        std::string("/a/../b"), std::string("../a"), std::string("/a/./b"), std::string("/a/"),
        std::string("/a\0b", 4), std::string("/a\nb"), std::string("/a\x7f"),
        std::string("/a\xc2\x85"), std::string("/\xff"), std::string("/\xc3"),
        "/" + std::string(241, 'a'), "/" + std::string(600, 'a'), "/" + std::string(81, ' '), deep,
        "/" + std::string(70, '!') + "/" + std::string(70, '!') + "/" + std::string(70, '!')}) {
    auto path = normalise_path(bad);
    ASSERT_FALSE(path.ok()) << bad;
    EXPECT_EQ(path.error().code, Errc::invalid_argument);
    EXPECT_EQ(path.error().message.rfind("invalid path: ", 0), 0u);
  }
  EXPECT_FALSE(normalise_folder("/a/../b/").ok());
}

TEST(Names, EntriesComeBack) {
  const Place place{"0f1e-team", "ws.1"};
  Version version;
  for (const char* path : {"/a", "/a/b", "/ü b/@v/=", "/.x/..y", "/0000000000000ab-12345678"}) {
    version.file.path = *normalise_path(path);
    version.file.size = 1234567890123;
    version.file.modified_at = now();
    version.file.version = make_version(version.file.modified_at);
    version.file.sha256 = std::string(64, 'a');
    version.data = make_data("0123abcd", now());
    const std::string key = entry_key(place, version);
    ASSERT_TRUE(blobs::check_key(key).ok()) << key;
    ASSERT_TRUE(blobs::check_key(place.content(version.data)).ok());
    const auto parsed = parse_entry(place, key);
    ASSERT_TRUE(parsed) << key;
    EXPECT_EQ(parsed->file.path, path);
    EXPECT_EQ(parsed->file.size, version.file.size);
    EXPECT_EQ(parsed->file.version, version.file.version);
    EXPECT_EQ(parsed->file.sha256, version.file.sha256);
    EXPECT_EQ(parsed->file.modified_at, version.file.modified_at);
    EXPECT_EQ(parsed->data, version.data);
    EXPECT_FALSE(parse_entry(Place{"other", "ws.1"}, key));
    EXPECT_EQ(data_of_key(place.content(version.data)), version.data);
    EXPECT_EQ(place_of_content(place.content(version.data)), place);
  }
}

TEST(Names, TheLongestPathIsAKey) {
  const Place place{std::string(60, 'f'), std::string(64, 'w')};
  Version version;
  version.file.path = *normalise_path("/" + std::string(238, 'a') + "/" + std::string(238, 'b') +
                                      "/" + std::string(120, 'c'));
  version.file.size = UINT64_MAX;
  version.file.version = make_version(now());
  version.file.sha256 = std::string(64, 'a');
  version.data = make_data("0123abcd", now());
  EXPECT_TRUE(blobs::check_key(entry_key(place, version)).ok());
}

TEST(Names, NoiseIsNoEntry) {
  const Place place{"t", "w"};
  for (const char* key : {"i/t/w/a", "i/t/w/a/@", "i/t/w/a/@x.1.2.3", "i/t/w/@v", "d/t/w/aa/b"})
    EXPECT_FALSE(parse_entry(place, key)) << key;
  EXPECT_FALSE(time_of_version("latest"));
  EXPECT_FALSE(time_of_version("../../../../../../../../"));
}

TEST(Names, VersionsSortByTime) {
  const Timestamp at = now();
  EXPECT_LT(make_version(at), make_version(at + std::chrono::microseconds(1)));
  EXPECT_LT(make_version(at), make_version(at + std::chrono::hours(24 * 365 * 30)));
  EXPECT_EQ(time_of_version(make_version(at)), at);
}

}  // namespace
}  // namespace atl::workspace
