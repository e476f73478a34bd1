// Settings of providers, and the box their secrets are in.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/encoding.h"
#include "store/keys.h"
#include "store/secret_box.h"
#include "store/store.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class ProviderTest : public testing::Test {
 protected:
  ProviderTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~ProviderTest() override { fs::remove_all(dir_); }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  fs::path dir_;
};

TEST_F(ProviderTest, Rows) {
  auto store = Store::open(path("state.db"));
  ASSERT_TRUE(store.ok());
  const std::string team = (*store)->default_team().id;
  auto other = (*store)->create_team("other");
  ASSERT_TRUE(other.ok());

  EXPECT_EQ(*(*store)->find_provider(team, "e2b"), std::nullopt);
  ProviderRecord record{team, "e2b", R"({"timeout":30})", {{"api_key", "v1:x"}}, from_ns(5)};
  ASSERT_TRUE((*store)->put_provider(record).ok());
  EXPECT_EQ(**(*store)->find_provider(team, "e2b"), record);
  EXPECT_EQ(*(*store)->find_provider(other->id, "e2b"), std::nullopt) << "another team's";
  record.config = "{}";
  record.secrets = {};
  record.updated_at = from_ns(6);
  ASSERT_TRUE((*store)->put_provider(record).ok());
  EXPECT_EQ(*(*store)->list_providers(team), std::vector<ProviderRecord>{record});

  EXPECT_EQ(*(*store)->active_provider(team), "");
  ASSERT_TRUE((*store)->set_active_provider(team, "local").ok());
  ASSERT_TRUE((*store)->set_active_provider(team, "e2b").ok());
  EXPECT_EQ(*(*store)->active_provider(team), "e2b");
  EXPECT_EQ(*(*store)->active_provider(other->id), "");
  EXPECT_FALSE(*(*store)->delete_provider(team, "local")) << "there are no such settings";
  EXPECT_EQ(*(*store)->active_provider(team), "e2b");
  EXPECT_TRUE(*(*store)->delete_provider(team, "e2b"));
  EXPECT_EQ(*(*store)->active_provider(team), "") << "no settings, not active";
  ASSERT_TRUE((*store)->set_active_provider(team, "local").ok());
  ASSERT_TRUE((*store)->set_active_provider(team, "").ok());
  EXPECT_EQ(*(*store)->active_provider(team), "");
}

TEST_F(ProviderTest, SealedAndUnsealed) {
  const SecretBox box(std::string(32, 'k'));
  for (const std::string& secret :
       {std::string("e2b_0123"), std::string(), std::string(5000, 's'), std::string("\0\n", 2)}) {
    const std::string sealed = box.seal(secret, "team/e2b/api_key");
    EXPECT_EQ(*box.unseal(sealed, "team/e2b/api_key"), secret);
    EXPECT_NE(box.seal(secret, "team/e2b/api_key"), sealed) << "a nonce of its own";
    if (!secret.empty()) {
      EXPECT_EQ(sealed.find(secret), std::string::npos);
    }
  }
}

TEST_F(ProviderTest, NotForAnotherPlaceNorByAnotherKey) {
  const SecretBox box(std::string(32, 'k'));
  const std::string sealed = box.seal("secret", "team/e2b/api_key");
  EXPECT_EQ(box.unseal(sealed, "team/e2b/other").error().code, Errc::data_loss);
  EXPECT_EQ(box.unseal(sealed, "").error().code, Errc::data_loss);
  const SecretBox other(std::string(31, 'k') + "l");
  EXPECT_EQ(other.unseal(sealed, "team/e2b/api_key").error().code, Errc::data_loss);
}

TEST_F(ProviderTest, EveryChangedByteIsNoticed) {
  const SecretBox box(std::string(32, 'k'));
  const std::string sealed = box.seal("secret", "c");
  const std::string raw = *base64_decode(std::string_view(sealed).substr(3));
  for (std::size_t i = 0; i < raw.size(); ++i) {
    std::string changed = raw;
    changed[i] = char(changed[i] ^ 1);
    EXPECT_FALSE(box.unseal("v1:" + base64_encode(changed), "c").ok()) << i;
    EXPECT_FALSE(box.unseal("v1:" + base64_encode(raw.substr(0, i)), "c").ok()) << i;
  }
  for (const char* garbage : {"", "v1:", "v2:AAAA", "secret", "v1:!!!!"})
    EXPECT_FALSE(box.unseal(garbage, "c").ok()) << garbage;
}

TEST_F(ProviderTest, KeyFile) {
  std::string sealed;
  {
    auto box = SecretBox::open(path("providers.key"));
    ASSERT_TRUE(box.ok()) << box.error().message;
    sealed = box->seal("secret", "c");
  }
  struct stat info{};
  ASSERT_EQ(::stat(path("providers.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  {
    auto box = SecretBox::open(path("providers.key"));
    ASSERT_TRUE(box.ok());
    EXPECT_EQ(*box->unseal(sealed, "c"), "secret") << "the same key after a restart";
  }
  ::chmod(path("providers.key").c_str(), 0644);
  EXPECT_EQ(SecretBox::open(path("providers.key")).error().code, Errc::failed_precondition);
  ASSERT_TRUE(write_secret_file(path("short.key"), "abcd\n").ok());
  EXPECT_EQ(SecretBox::open(path("short.key")).error().code, Errc::failed_precondition);
}

}  // namespace
}  // namespace atl::store
