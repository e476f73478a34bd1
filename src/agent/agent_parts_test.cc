// The pure parts: end statuses, /init bodies and state, who needs a token, PATH search, metrics
// parsing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "agent/auth.h"
#include "agent/dial.h"
#include "agent/metrics.h"
#include "agent/process_end.h"
#include "agent/spawn.h"
#include "agent/start_command.h"
#include "agent/state.h"
#include "agent/testing.h"

namespace atl::agent {
namespace {

TEST(EndStatus, Table) {
  EXPECT_EQ(end_status(0), (EndStatus{0, true, "exit status 0", std::nullopt}));
  EXPECT_EQ(end_status(42 << 8), (EndStatus{42, true, "exit status 42", "exit status 42"}));
  EXPECT_EQ(end_status(SIGKILL), (EndStatus{-1, false, "signal: killed", "signal: killed"}));
  EXPECT_EQ(end_status(SIGSEGV | 0x80),
            (EndStatus{-1, false, "signal: segmentation fault (core dumped)",
                       "signal: segmentation fault (core dumped)"}));
  EXPECT_EQ(end_status(SIGTERM).status, "signal: terminated");
  EXPECT_EQ(end_status(40).status, "signal: signal 40");
}

TEST(Rfc3339, Times) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(parse_rfc3339("2026-01-01T00:00:00.123456789Z"), 1767225600'123456789);
  EXPECT_EQ(parse_rfc3339("2026-01-01T02:00:00.5+02:00"), 1767225600'500000000);
  EXPECT_EQ(parse_rfc3339("1969-12-31T19:00:00-05:00"), 0);
  for (const char* bad :
       {"", "2026-01-01", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.1234567890Z",
        "2026-01-01T00:00:00Zx", "2026-01-01T00:00:00+02", "9999-01-01T00:00:00Z",
        "2026-01-01 00:00:00Z"}) {
    EXPECT_EQ(parse_rfc3339(bad), std::nullopt) << bad;
  }
}

TEST(Init, Parsing) {
  const auto full = parse_init(
      R"({"accessToken":"t","envVars":{"A":"b"},"defaultUser":"u","defaultWorkdir":"/w","sandboxId":"i1","templateId":"base",
          "timestamp":"2026-01-01T00:00:00Z","memoryLimit":1073741824,"cpuCount":2,"hyperloop":null})");
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(full->access_token, "t");
  EXPECT_EQ(full->env_vars->at("A"), "b");
  EXPECT_EQ(full->memory_limit, 1073741824u);
  EXPECT_EQ(full->cpu_count, 2u);
  EXPECT_TRUE(full->timestamp_ns);
  EXPECT_TRUE(parse_init("").ok());
  EXPECT_FALSE(parse_init(R"({"accessToken":""})")->access_token);
  for (const char* bad :
       {"[]", "{", R"({"accessToken":5})", R"({"envVars":[]})", R"({"envVars":{"A":1}})",
        R"({"envVars":{"A=B":"x"}})", R"({"envVars":{"":"x"}})", R"({"envVars":{"A":"\u0000"}})",
        R"({"timestamp":"yesterday"})", R"({"memoryLimit":-1})", R"({"cpuCount":0})"}) {
    ASSERT_FALSE(parse_init(bad).ok()) << bad;
    EXPECT_EQ(parse_init(bad).error().code, Errc::invalid_argument) << bad;
  }
}

InitRequest request(std::string_view body) { return *parse_init(body); }

TEST(State, EnvironmentFile) {
  using Vars = std::map<std::string, std::string>;
  EXPECT_EQ(parse_environment_file("A=1\n# B=2\n\nC=\"x y\"\nD='z'\nno value\n=e\nF=\nA=3"),
            (Vars{{"A", "3"}, {"C", "x y"}, {"D", "z"}, {"F", ""}}));
  EXPECT_EQ(parse_environment_file(std::string_view("N=a\0b\nM=\"\n", 10)), (Vars{{"M", "\""}}));
  EXPECT_EQ(parse_environment_file(""), Vars{});

  AgentState state;
  state.set_template_vars({{"LANG", "C.UTF-8"}, {"HOME", "/elsewhere"}, {"E2B_SANDBOX", "no"}});
  EXPECT_FALSE(state.env_vars().contains("LANG"));
  const User user{.name = "user", .home = "/home/user"};
  const auto environment = process_environment(state, "/bin", user, Vars{{"X", "1"}});
  const std::vector<std::string> expected{
      "E2B_SANDBOX=true", "HOME=/home/user", "LANG=C.UTF-8", "LOGNAME=user",
      "PATH=/bin",        "USER=user",       "X=1"};
  EXPECT_EQ(environment, expected);
}

TEST(State, InitReplacesAndClears) {
  AgentState state("root");
  EXPECT_EQ(state.env_vars(), (std::map<std::string, std::string>{{"E2B_SANDBOX", "true"}}));
  EXPECT_TRUE(state.token_matches(""));
  EXPECT_TRUE(state.apply(request(
      R"({"accessToken":"secret","envVars":{"A":"b","E2B_SANDBOX_ID":"fake"},"defaultUser":"user","sandboxId":"i1","templateId":"base"})")));
  EXPECT_EQ(state.env_vars(), (std::map<std::string, std::string>{{"A", "b"},
                                                                  {"E2B_SANDBOX", "true"},
                                                                  {"E2B_SANDBOX_ID", "i1"},
                                                                  {"E2B_TEMPLATE_ID", "base"}}));
  EXPECT_EQ(state.default_user(), "user");
  EXPECT_TRUE(state.token_matches("secret"));
  EXPECT_FALSE(state.token_matches("secre"));
  EXPECT_FALSE(state.token_matches(""));
  // Variables are replaced as a whole, the token is cleared by absence, the rest stays.
  EXPECT_TRUE(state.apply(request(R"({"envVars":{"C":"d"}})")));
  EXPECT_FALSE(state.env_vars().contains("A"));
  EXPECT_EQ(state.env_vars().at("C"), "d");
  EXPECT_EQ(state.env_vars().at("E2B_SANDBOX_ID"), "i1");
  EXPECT_FALSE(state.access_token());
  EXPECT_EQ(state.default_user(), "user");
}

TEST(State, OlderRequestsAreNotApplied) {
  AgentState state;
  EXPECT_TRUE(state.apply(request(R"({"accessToken":"new","timestamp":"2026-01-01T00:00:02Z"})")));
  EXPECT_FALSE(state.apply(request(R"({"accessToken":"old","timestamp":"2026-01-01T00:00:01Z"})")));
  EXPECT_FALSE(state.apply(request(R"({"accessToken":"old","timestamp":"2026-01-01T00:00:02Z"})")));
  EXPECT_EQ(state.access_token(), "new");
  EXPECT_TRUE(state.apply(
      request(R"({"accessToken":"newer","timestamp":"2026-01-01T00:00:02.000000001Z"})")));
  EXPECT_TRUE(state.apply(request(R"({"accessToken":"timeless"})")));
  EXPECT_EQ(state.access_token(), "timeless");
}

TEST(State, MarkerFiles) {
  const testing::TempDir scratch;
  const std::string directory = scratch / "e2b";
  AgentState state;
  ASSERT_TRUE(state.apply(request(R"({"sandboxId":"i1","envVars":{"A":"b"}})")));
  ASSERT_TRUE(write_marker_files(state, directory).ok());
  ASSERT_TRUE(write_marker_files(state, directory).ok());
  std::string text;
  std::getline(std::ifstream(directory + "/.E2B_SANDBOX_ID"), text);
  EXPECT_EQ(text, "i1");
  EXPECT_FALSE(std::ifstream(directory + "/.A").good());
}

TEST(Auth, TokenAndItsExceptions) {
  AgentState state;
  const auto allowed = [&state](std::string method, std::string target, std::string token = "") {
    net::RequestHead head;
    head.method = std::move(method);
    head.target = std::move(target);
    if (!token.empty()) head.headers.add("x-access-token", std::move(token));
    return is_token_accepted(state, head);
  };
  EXPECT_TRUE(allowed("POST", "/process.Process/List"));  // no token is set
  ASSERT_TRUE(state.apply(request(R"({"accessToken":"t0k"})")));
  EXPECT_FALSE(allowed("POST", "/process.Process/List"));
  EXPECT_FALSE(allowed("POST", "/process.Process/List", "t0K"));
  EXPECT_TRUE(allowed("POST", "/process.Process/List", "t0k"));
  EXPECT_TRUE(allowed("GET", "/health"));
  EXPECT_TRUE(allowed("GET", "/files?path=/x"));
  EXPECT_TRUE(allowed("POST", "/files"));
  EXPECT_TRUE(allowed("POST", "/init"));
  for (const char* path :
       {"/metrics", "/envs", "/files/", "/files/compose", "/healthz", "/unknown", "/init"}) {
    EXPECT_FALSE(allowed("GET", path)) << path;
  }
  EXPECT_FALSE(allowed("DELETE", "/files"));
  EXPECT_FALSE(allowed("POST", "/health"));
}

TEST(Auth, BasicUserMustExist) {
  net::RequestHead head;
  EXPECT_TRUE(check_basic_user(head).ok());
  head.headers.set("Authorization", "Bearer abc");
  EXPECT_TRUE(check_basic_user(head).ok());
  head.headers.set("Authorization", "Basic cm9vdDo=");  // root:
  EXPECT_TRUE(check_basic_user(head).ok());
  head.headers.set("Authorization", "Basic bm8tc3VjaC11c2VyOg==");  // no-such-user:
  const auto refused = check_basic_user(head);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unauthenticated);
  EXPECT_EQ(refused.error().message, "invalid username: 'no-such-user'");
}

TEST(Spawn, PathCandidates) {
  using V = std::vector<std::string>;
  EXPECT_EQ(path_candidates("ls", "/usr/bin:/bin/"), (V{"/usr/bin/ls", "/bin/ls"}));
  EXPECT_EQ(path_candidates("./ls", "/bin"), (V{"./ls"}));
  EXPECT_EQ(path_candidates("/bin/ls", "/usr/bin"), (V{"/bin/ls"}));
  EXPECT_EQ(path_candidates("ls", ":/bin"), (V{"./ls", "/bin/ls"}));
  EXPECT_EQ(path_candidates("", "/bin"), (V{}));
}

TEST(Dial, Targets) {
  EXPECT_EQ(parse_dial_target("8000"), 8000);
  EXPECT_EQ(parse_dial_target("127.0.0.1:8000"), 8000);
  EXPECT_EQ(parse_dial_target("[::1]:65535"), 65535);
  for (const char* bad : {"", "0", "65536", "x", "127.0.0.1:", "8000/", "-1", "80 "}) {
    EXPECT_EQ(parse_dial_target(bad), std::nullopt) << bad;
  }
}

TEST(Metrics, Parsing) {
  EXPECT_EQ(
      parse_stat_ticks("7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 10 20 3 4 20 0 1 0 100 0 0"),
      37u);
  EXPECT_EQ(parse_stat_ticks("7 (sh) S 1"), std::nullopt);
  EXPECT_EQ(parse_stat_ticks(""), std::nullopt);
  EXPECT_EQ(parse_statm_anonymous("1000 300 120 1 0 200 0\n"), 180u);
  EXPECT_EQ(parse_statm_anonymous("0 0 0 0 0 0 0\n"), 0u);
  EXPECT_EQ(parse_statm_anonymous("1 2"), std::nullopt);
  const MemInfo info = parse_meminfo(
      "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 50 kB\nCached: 150 kB\nSReclaimable: 0 kB\n");
  EXPECT_EQ(info.total, 1000u * 1024);
  EXPECT_EQ(info.used, 500u * 1024);
  EXPECT_EQ(info.cache, 150u * 1024);
}

TEST(Metrics, OfThisMachine) {
  AgentState state;
  Metrics metrics(state);
  const json::object seen = metrics.collect();
  for (const char* key : {"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache",
                          "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"}) {
    EXPECT_TRUE(seen.contains(key)) << key;
  }
  EXPECT_GT(seen.at("mem_total").to_number<double>(), 0);
  EXPECT_GT(seen.at("disk_total").to_number<double>(), 0);
  ASSERT_TRUE(state.apply(request(R"({"memoryLimit":536870912,"cpuCount":3})")));
  const json::object limited = metrics.collect();
  EXPECT_EQ(limited.at("mem_total").to_number<std::uint64_t>(), 536870912u);
  EXPECT_EQ(limited.at("cpu_count").to_number<int>(), 3);
}

}  // namespace
}  // namespace atl::agent
