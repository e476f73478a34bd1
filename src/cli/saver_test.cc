#include "cli/saver.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

class SaverTest : public ::testing::Test {
 protected:
  SaverTest() {
    std::string pattern = (fs::temp_directory_path() / "saver-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
  }
  ~SaverTest() override { fs::remove_all(dir_); }
  std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path dir_;
};

TEST(Saver, Names) {
  for (const char* name : {"a", "a.png", "a/b/c.txt", "a b", "-rf", "..a", "\xc3\xa9"})
    EXPECT_TRUE(is_savable_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string(".."),
        std::string("a/../b"), std::string("./a"), std::string("a\nb"), std::string("a\0b", 3),
        std::string("a\x1b[2J"), std::string(300, 'a'), std::string(2000, 'a')})
    EXPECT_FALSE(is_savable_name(name)) << name;
}

TEST_F(SaverTest, SavesWithoutTouchingWhatIsThere) {
  auto saver = Saver::start((dir_ / "out").string());
  ASSERT_TRUE(saver.ok());
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  const std::string big(1'000'000, 'x');
  EXPECT_EQ(*saver->save("plot.png", big), (dir_ / "out/plot.png").string());
  EXPECT_EQ(*saver->save("plot.png", "second"), (dir_ / "out/plot-2.png").string());
  EXPECT_EQ(*saver->save("a/b/README", ""), (dir_ / "out/a/b/README").string());
  EXPECT_EQ(*saver->save("a/b/README", "x"), (dir_ / "out/a/b/README-2").string());
  EXPECT_EQ(content(dir_ / "out/plot.png"), big);
  EXPECT_EQ(content(dir_ / "out/plot-2.png"), "second");
  EXPECT_EQ(content(dir_ / "out/a/b/README"), "");
}

TEST_F(SaverTest, StaysInItsFolder) {
  fs::create_directory(dir_ / "out");
  fs::create_directory(dir_ / "elsewhere");
  fs::create_directory_symlink(dir_ / "elsewhere", dir_ / "out/link");
  fs::create_symlink(dir_ / "elsewhere/new", dir_ / "out/file");
  auto saver = Saver::start((dir_ / "out").string());
  ASSERT_TRUE(saver.ok());
  EXPECT_FALSE(saver->save("../up", "x").ok());
  EXPECT_FALSE(saver->save("link/x", "x").ok());
  EXPECT_EQ(*saver->save("file", "x"), (dir_ / "out/file-2").string());
  EXPECT_TRUE(fs::is_empty(dir_ / "elsewhere"));
  EXPECT_FALSE(saver->write("x").ok());
  EXPECT_TRUE(saver->save("fine", "x").ok());
}

TEST_F(SaverTest, SaysWhyItCannot) {
  std::ofstream(dir_ / "file") << "x";
  auto saver = Saver::start((dir_ / "file").string());
  ASSERT_TRUE(saver.ok());
  auto saved = saver->save("a", "x");
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find("cannot open"), std::string::npos) << saved.error().message;
}

}  // namespace
}  // namespace atl::cli
