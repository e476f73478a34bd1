#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "templates/catalog.h"
#include "templates/reference.h"

namespace atl::templates {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest =
    R"({"version":1,"templateID":"abcdefghij0123456789","names":["base","base-alias"],"buildID":"3f1f64b4-0000-4000-8000-000000000001",
        "cpuCount":2,"memoryMB":512,"diskMB":5120,"envdVersion":"0.6.13","createdAt":"2026-01-01T00:00:00Z","defaultUser":"user"})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Reference, Grammar) {
  EXPECT_EQ(*parse_reference("base"), (Reference{"", "base", ""}));
  EXPECT_EQ(*parse_reference("  Team/My-Name_1:V1.2 "), (Reference{"team", "my-name_1", "v1.2"}));
  EXPECT_EQ(*parse_reference("base:default"), (Reference{"", "base", ""}));
  for (const char* bad :
       {"", "  ", "a/b/c", "a b", "a:", "a:b:c", "/a", "a/", "../x", "ä", "a%2f"}) {
    auto parsed = parse_reference(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, Errc::invalid_argument);
    EXPECT_THAT(parsed.error().message, testing::StartsWith("Invalid template reference: "));
  }
  EXPECT_FALSE(parse_reference(std::string(1000, 'a')).ok());
}

TEST(Manifest, ParsesAllFields) {
  auto t = parse_manifest(kManifest, "base-1");
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_EQ(t->dir, "base-1");
  EXPECT_EQ(t->id, "abcdefghij0123456789");
  EXPECT_EQ(t->alias(), "base");
  EXPECT_EQ(t->cpu_count, 2u);
  EXPECT_EQ(t->memory_mb, 512u);
  EXPECT_EQ(t->disk_mb, 5120u);
  EXPECT_EQ(t->envd_version, "0.6.13");
  EXPECT_FALSE(t->zygote);
}

TEST(Manifest, AZygoteIsAskedForInWords) {
  auto t = parse_manifest(replaced(kManifest, "{", R"({"zygote":true,)"), "x");
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_TRUE(t->zygote);
  EXPECT_FALSE(parse_manifest(replaced(kManifest, "{", R"({"zygote":false,)"), "x")->zygote);
}

TEST(Manifest, NamesTheFieldThatIsWrong) {
  const std::pair<std::string, std::pair<std::string, std::string>> cases[] = {
      {"version", {"\"version\":1", "\"version\":2"}},
      {"templateID", {"abcdefghij0123456789", "short"}},
      {"names", {"\"base\",", "\"../etc\","}},
      {"cpuCount", {"\"cpuCount\":2", "\"cpuCount\":\"2\""}},
      {"memoryMB", {"\"memoryMB\":512", "\"memoryMB\":1"}},
      {"createdAt", {"2026-01-01T00:00:00Z", "yesterday"}},
      {"defaultUser", {"\"user\"", "\"\""}},
      {"startCommand", {"{", R"({"startCommand":7,)"}},
      {"startCommand", {"{", R"({"startCommand":"",)"}},
      {"rootfs", {"{", R"({"rootfs":"../x",)"}},
      {"zygote", {"{", R"({"zygote":1,)"}},
  };
  for (const auto& [field, change] : cases) {
    auto t = parse_manifest(replaced(kManifest, change.first, change.second), "x");
    ASSERT_FALSE(t.ok()) << field;
    EXPECT_THAT(t.error().message, testing::HasSubstr(field));
  }
  EXPECT_FALSE(parse_manifest("[]", "x").ok());
  EXPECT_FALSE(parse_manifest("{", "x").ok());
}

class CatalogTest : public testing::Test {
 protected:
  CatalogTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-templates-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~CatalogTest() override { fs::remove_all(dir_); }
  // As the builder does it: complete first, then renamed into place.
  void add(const std::string& name, const std::string& manifest) {
    fs::create_directory(dir_ / ".building");
    std::ofstream(dir_ / ".building" / "manifest.json") << manifest;
    fs::rename(dir_ / ".building", dir_ / name);
    // Coarse filesystem clocks must not hide the second change of a test.
    fs::last_write_time(dir_, fs::last_write_time(dir_) + std::chrono::seconds(++changes_));
  }
  fs::path dir_;
  int changes_ = 0;
};

TEST_F(CatalogTest, FindsByNameIdLanguageAndBuild) {
  add("base-1", kManifest);
  Catalog catalog(dir_);
  for (const char* reference :
       {"base", "BASE ", "base-alias", "abcdefghij0123456789", "python", "python3", "nodejs",
        "javascript", "bash", "base:default", "base:3f1f64b4-0000-4000-8000-000000000001"}) {
    auto t = catalog.find(reference);
    ASSERT_TRUE(t.ok()) << reference;
    EXPECT_EQ(t->dir, "base-1");
  }
}

TEST_F(CatalogTest, UnknownNamesAndTagsAreNotFound) {
  add("base-1", kManifest);
  Catalog catalog(dir_);
  auto name = catalog.find("nothing");
  ASSERT_FALSE(name.ok());
  EXPECT_EQ(name.error().code, Errc::not_found);
  EXPECT_EQ(name.error().message, "template 'nothing' not found");
  auto tag = catalog.find("base:v2");
  ASSERT_FALSE(tag.ok());
  EXPECT_EQ(tag.error().message, "tag 'v2' does not exist for template 'base'");
  EXPECT_EQ(catalog.find("base-1").error().code, Errc::not_found);  // a directory is not a name
  EXPECT_EQ(catalog.find("../base-1").error().code, Errc::invalid_argument);
}

TEST_F(CatalogTest, NoticesNewTemplatesAndSkipsBrokenOnes) {
  Catalog catalog(dir_);
  EXPECT_FALSE(catalog.find("base").ok());
  add("broken", "{");
  EXPECT_FALSE(catalog.find("base").ok());
  add("base-1", kManifest);
  EXPECT_TRUE(catalog.find("base").ok());
  EXPECT_EQ(catalog.list().size(), 1u);
}

std::string sharing(const std::string& root) {
  std::string text = replaced(kManifest, "abcdefghij0123456789", "bbcdefghij0123456789");
  text = replaced(text, R"("base","base-alias")", R"("small")");
  return replaced(text, "{",
                  R"({"startCommand":"python3 -m http.server 8080","rootfs":")" + root + "\",");
}

TEST_F(CatalogTest, SmallTemplatesShareARoot) {
  add("base-1", kManifest);
  add("small-1", sharing("base"));
  Catalog catalog(dir_);
  auto t = catalog.find("small");
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_EQ(t->dir, "base-1") << "the runtime finds the root there";
  EXPECT_EQ(t->id, "bbcdefghij0123456789");
  EXPECT_EQ(t->alias(), "small");
  EXPECT_EQ(t->start_command, "python3 -m http.server 8080");
  EXPECT_EQ(catalog.find("base")->start_command, "");
  EXPECT_EQ(catalog.list().size(), 2u);
}

TEST_F(CatalogTest, ARootThatIsNotThereLeavesTheTemplateOut) {
  add("small-1", sharing("base"));
  Catalog catalog(dir_);
  EXPECT_FALSE(catalog.find("small").ok());
  add("base-1", kManifest);
  EXPECT_TRUE(catalog.find("small").ok());
  add("third-1", replaced(replaced(sharing("small"), "bbcdefghij", "ccdefghijk"), "[\"small\"]",
                          "[\"third\"]"));
  EXPECT_FALSE(catalog.find("third").ok()) << "no chains";
  EXPECT_EQ(catalog.list().size(), 2u);
}

TEST_F(CatalogTest, NoDirectoryMeansNoTemplates) {
  Catalog catalog(dir_ / "missing");
  EXPECT_EQ(catalog.find("base").error().code, Errc::not_found);
  EXPECT_TRUE(catalog.list().empty());
}

}  // namespace
}  // namespace atl::templates
