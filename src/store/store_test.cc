#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "store/crypto.h"
#include "store/keys.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~StoreTest() override { fs::remove_all(dir_); }

  std::string path(const std::string& name = "state.db") const { return (dir_ / name).string(); }
  std::unique_ptr<Store> open() {
    auto store = Store::open(path());
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return std::move(store).value();
  }
  static mode_t mode_of(const std::string& file) {
    struct stat info{};
    EXPECT_EQ(::stat(file.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  fs::path dir_;
};

// The command line adds a key while a server runs, whose database is not new.
TEST_F(StoreTest, AnotherProcessComesAndGoes) {
  open();
  // The child is made before the connection that it must not share with us, and waits for it.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    if (::read(ends[0], &byte, 1) != 1) ::_exit(2);
    auto other = Store::open(path());
    if (!other.ok() || !create_key(**other, (*other)->default_team().id, "theirs").ok()) ::_exit(1);
    other->reset();
    ::_exit(0);
  }
  auto store = open();
  struct stat before{};
  ASSERT_EQ(::stat(path("state.db-wal").c_str(), &before), 0);
  ASSERT_EQ(::write(ends[1], "+", 1), 1);
  ::close(ends[0]);
  ::close(ends[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  struct stat after{};
  ASSERT_EQ(::stat(path("state.db-wal").c_str(), &after), 0) << "it was removed under this process";
  EXPECT_EQ(after.st_ino, before.st_ino);
  auto keys = store->list_keys(store->default_team().id);
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->size(), 1u);
}

SandboxRecord sample(const Store& store, const std::string& id = "iaaaa") {
  SandboxRecord r{.id = *SandboxId::parse(id)};
  r.team_id = store.default_team().id;
  r.key_id = "k";
  r.template_id = "t";
  r.template_dir = "base";
  r.created_at = now();
  r.started_at = r.created_at + std::chrono::milliseconds(3);
  r.end_at = r.started_at + std::chrono::seconds(60);
  r.timeout = std::chrono::seconds(60);
  r.metadata = {{"k", "v"}, {"quote\"", "line\nbreak \xe2\x82\xac"}};
  r.envs = {{"A", "1"}};
  r.network = R"({"denyOut":["0.0.0.0/0"]})";
  r.secure = true;
  r.allow_internet = false;
  return r;
}

TEST_F(StoreTest, FileIsForTheOwnerOnly) {
  auto store = open();
  EXPECT_EQ(mode_of(path()), 0600u);
  EXPECT_EQ(mode_of(path("state.db-wal")), 0600u);
}

TEST_F(StoreTest, SandboxSurvivesReopening) {
  SandboxRecord record = sample(*open());
  std::string team;
  {
    auto store = open();
    team = store->default_team().id;
    ASSERT_TRUE(store->insert_sandbox(record).ok());
    record.state = SandboxState::running;
    record.end_at += std::chrono::seconds(5);
    ASSERT_TRUE(store->update_sandbox(record).ok());
  }
  auto store = open();
  EXPECT_EQ(store->default_team().id, team);
  auto found = store->find_sandbox(record.id);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ(**found, record);
}

TEST_F(StoreTest, KilledOnesAreNotLiveAndArePurgedByAge) {
  auto store = open();
  SandboxRecord a = sample(*store, "ia");
  SandboxRecord b = sample(*store, "ib");
  b.created_at = a.created_at - std::chrono::hours(48);
  b.end_at = b.created_at + std::chrono::hours(1);
  b.state = SandboxState::killed;
  ASSERT_TRUE(store->insert_sandbox(a).ok());
  ASSERT_TRUE(store->insert_sandbox(b).ok());
  auto live = store->live_sandboxes();
  ASSERT_TRUE(live.ok());
  ASSERT_EQ(live->size(), 1u);
  EXPECT_EQ(live->front().id, a.id);
  auto purged = store->purge_killed(a.created_at - std::chrono::hours(24));
  ASSERT_TRUE(purged.ok());
  EXPECT_EQ(*purged, 1);
  EXPECT_FALSE(store->find_sandbox(b.id)->has_value());
  EXPECT_TRUE(store->find_sandbox(a.id)->has_value());
}

TEST_F(StoreTest, ErrorsAreTyped) {
  auto store = open();
  const SandboxRecord record = sample(*store);
  auto missing = store->update_sandbox(record);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::not_found);
  ASSERT_TRUE(store->insert_sandbox(record).ok());
  auto twice = store->insert_sandbox(record);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, Errc::already_exists);
  SandboxRecord foreign = sample(*store, "iother");
  foreign.team_id = "nobody";
  EXPECT_FALSE(store->insert_sandbox(foreign).ok());
}

TEST_F(StoreTest, RefusesAFileOfANewerVersion) {
  open();
  {
    auto database = Database::open(path());
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->exec("PRAGMA user_version=999").ok());
  }
  auto store = Store::open(path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Errc::failed_precondition);
  EXPECT_THAT(store.error().message, testing::HasSubstr("999"));
}

TEST_F(StoreTest, RefusesWhatIsNoDatabase) {
  std::ofstream(path()) << std::string(8192, 'x');
  auto store = Store::open(path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Errc::data_loss);
}

TEST_F(StoreTest, KeysAreHashedAndMasked) {
  auto store = open();
  auto key = create_key(*store, store->default_team().id, "ci");
  ASSERT_TRUE(key.ok());
  EXPECT_THAT(key->secret, testing::MatchesRegex("e2b_[0-9a-f]+"));
  EXPECT_EQ(key->secret.size(), 44u);
  EXPECT_EQ(key->record.value_length, 40);
  EXPECT_EQ(key->record.mask_prefix, key->secret.substr(4, 2));
  EXPECT_EQ(key->record.mask_suffix, key->secret.substr(40));

  auto known = verify_key(*store, key->secret);
  ASSERT_TRUE(known.ok() && known->has_value());
  EXPECT_EQ((*known)->id, key->record.id);
  EXPECT_EQ((*known)->team_id, store->default_team().id);
  for (const std::string& wrong :
       {std::string(), std::string("e2b_"), key->secret + "0", key->secret.substr(0, 43),
        "e2b_" + std::string(40, '0'), "E2B_" + key->secret.substr(4),
        "e2b_" + std::string(100'000, 'a')}) {
    auto unknown = verify_key(*store, wrong);
    ASSERT_TRUE(unknown.ok());
    EXPECT_FALSE(unknown->has_value()) << wrong.substr(0, 60);
  }

  store.reset();
  std::string everything;
  for (const auto& file : fs::directory_iterator(dir_)) {
    std::ifstream in(file.path(), std::ios::binary);
    everything.append(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_EQ(everything.find(key->secret), std::string::npos);
  EXPECT_EQ(everything.find(key->secret.substr(4)), std::string::npos);
  EXPECT_NE(everything.find(sha256_hex(key->secret)), std::string::npos);
}

TEST_F(StoreTest, KeysOfOtherTeamsAndDeletedKeysAreGone) {
  auto store = open();
  auto key = create_key(*store, store->default_team().id, "a");
  ASSERT_TRUE(key.ok());
  EXPECT_FALSE(*store->delete_key("another-team", key->record.id));
  EXPECT_TRUE(*store->delete_key(store->default_team().id, key->record.id));
  EXPECT_FALSE(*store->delete_key(store->default_team().id, key->record.id));
  EXPECT_FALSE(verify_key(*store, key->secret)->has_value());
}

TEST_F(StoreTest, TeamsAreListedAndKeysRenamed) {
  auto store = open();
  const auto teams = store->list_teams();
  ASSERT_TRUE(teams.ok());
  ASSERT_EQ(teams->size(), 1u);
  EXPECT_EQ(teams->front().id, store->default_team().id);
  const std::string team = store->default_team().id;
  auto key = create_key(*store, team, "old name");
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(*store->rename_key(team, key->record.id, "new name"));
  EXPECT_EQ(store->list_keys(team)->front().name, "new name");
  EXPECT_FALSE(*store->rename_key("another", key->record.id, "x"));
  EXPECT_FALSE(*store->rename_key(team, "another", "x"));
}

TEST_F(StoreTest, AKeyMadeByAnotherProcessIsSeenAtOnce) {
  auto server = open();
  auto cli = open();
  auto key = create_key(*cli, cli->default_team().id, "cli");
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(verify_key(*server, key->secret)->has_value());
}

TEST_F(StoreTest, LastUseIsRemembered) {
  auto store = open();
  auto key = create_key(*store, store->default_team().id, "a");
  ASSERT_TRUE(key.ok());
  EXPECT_FALSE(store->list_keys(store->default_team().id)->front().last_used);
  (void)verify_key(*store, key->secret);
  EXPECT_TRUE(store->list_keys(store->default_team().id)->front().last_used);
}

TEST_F(StoreTest, DefaultKeyIsMadeOnceAndKept) {
  auto store = open();
  auto first = ensure_default_key(*store, path("default.key"));
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->fresh);
  EXPECT_EQ(mode_of(path("default.key")), 0600u);
  auto second = ensure_default_key(*store, path("default.key"));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->fresh);
  EXPECT_EQ(second->secret, first->secret);

  // A key that the store does not know is of no use to anybody.
  ASSERT_TRUE(store
                  ->delete_key(store->default_team().id,
                               store->list_keys(store->default_team().id)->front().id)
                  .ok());
  auto third = ensure_default_key(*store, path("default.key"));
  ASSERT_TRUE(third.ok());
  EXPECT_TRUE(third->fresh);
  EXPECT_NE(third->secret, first->secret);
}

TEST_F(StoreTest, SecretFilesThatOthersReadAreRefused) {
  auto store = open();
  ASSERT_TRUE(ensure_default_key(*store, path("default.key")).ok());
  ASSERT_EQ(::chmod(path("default.key").c_str(), 0644), 0);
  auto refused = ensure_default_key(*store, path("default.key"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::failed_precondition);
  ASSERT_EQ(::symlink(path("default.key").c_str(), path("link").c_str()), 0);
  EXPECT_FALSE(read_secret_file(path("link")).ok());
}

TEST_F(StoreTest, CheckpointRunsBesideWriters) {
  auto store = open();
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(store->insert_sandbox(sample(*store, "i" + std::to_string(i))).ok());
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(store->checkpoint().ok());
  writer.join();
  EXPECT_TRUE(store->checkpoint().ok());
  auto idle = store->checkpoint();
  ASSERT_TRUE(idle.ok());
  EXPECT_FALSE(*idle);
  EXPECT_EQ(store->live_sandboxes()->size(), 200u);
}

TEST(Crypto, KnownVectors) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hmac_sha256_hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(State, NamesRoundTrip) {
  for (int i = 0; i <= int(SandboxState::killed); ++i) {
    EXPECT_EQ(parse_state(to_string(SandboxState(i))), SandboxState(i));
  }
  EXPECT_FALSE(parse_state("dead"));
}

}  // namespace
}  // namespace atl::store
