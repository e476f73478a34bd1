// What schemas say and what validation lets through, for every provider.
#include "providers/schema.h"

#include <gtest/gtest.h>

#include "providers/registry.h"
#include "providers/url.h"

namespace atl::providers {
namespace {

json::object parsed(std::string_view text) { return parse_json(text)->get_object(); }

// "" when it is fine, else the message.
std::string verdict(std::string_view provider, std::string_view config) {
  const auto kind = find_kind(provider);
  EXPECT_TRUE(kind.ok());
  const auto done = validate(**kind, parsed(config));
  if (!done.ok()) {
    EXPECT_EQ(done.error().code, Errc::invalid_argument);
  }
  return done.ok() ? "" : done.error().message;
}

TEST(Schema, EveryFieldDescribesItself) {
  for (const Kind& kind : all_kinds()) {
    EXPECT_FALSE(kind.languages.empty()) << kind.id;
    EXPECT_NE(find_field(kind.schema, "timeout"), nullptr) << kind.id << ": runs need a limit";
    for (const Field& field : kind.schema) {
      const json::object shown = describe(field);
      for (const char* member : {"type", "required", "label", "description", "scope"})
        EXPECT_TRUE(shown.contains(member)) << kind.id << "." << field.name << " " << member;
      EXPECT_FALSE(field.label.empty() || field.description.empty()) << field.name;
      EXPECT_FALSE(field.secret && shown.contains("default")) << field.name;
    }
  }
}

TEST(Schema, UnknownProviders) {
  const auto kind = find_kind("nope");
  ASSERT_FALSE(kind.ok());
  EXPECT_EQ(kind.error().code, Errc::not_found);
  EXPECT_NE(kind.error().message.find("executor-manager"), std::string::npos);
}

TEST(Schema, Defaults) {
  const auto kind = find_kind("executor-manager");
  const auto config = validate(**kind, {});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(text_of(*config, "endpoint"), "http://localhost:9385");
  EXPECT_EQ(number_of(*config, "timeout"), 30);
  EXPECT_EQ(number_of(*config, "max_retries"), 3);
  EXPECT_FALSE(config->contains("max_memory")) << "facts of the deployment are no settings";
  const json::object shown = describe(*find_field((*kind)->schema, "max_memory"));
  EXPECT_EQ(shown.at("default"), "256m");
  EXPECT_EQ(shown.at("readonly"), true);
  EXPECT_EQ(shown.at("scope"), "deployment");
  const json::object timeout = describe(*find_field((*kind)->schema, "timeout"));
  EXPECT_EQ(timeout.at("min"), 5);
  EXPECT_EQ(timeout.at("max"), 300);
}

struct Case {
  const char* provider;
  const char* config;
  const char* message;  // part of it; "" is fine
};

TEST(Schema, Verdicts) {
  const Case cases[] = {
      {"local", "{}", ""},
      {"local", R"({"timeout": 300, "template": "base", "allow_internet_access": false})", ""},
      {"local", R"({"timeout": 0})", "'timeout' must be between 1 and 300"},
      {"local", R"({"timeout": 1.5})", "'timeout' must be an integer"},
      {"local", R"({"timeout": "30"})", "'timeout' must be an integer"},
      {"local", R"({"timeout": 30.0})", ""},
      {"local", R"({"template": "a b"})", "'template' may have letters"},
      {"local", R"({"allow_internet_access": "yes"})", "'allow_internet_access' must be true or"},
      {"local", R"({"nope": 1})", "there is no setting 'nope'"},
      {"executor-manager", R"({"endpoint": "http://10.0.0.1:9385/base/"})", ""},
      {"executor-manager", R"({"endpoint": "ftp://x"})", "'endpoint' must be a URL that begins"},
      {"executor-manager", R"({"endpoint": "http://"})", "'endpoint' must be a URL with the name"},
      {"executor-manager", R"({"endpoint": "http://a@b"})", "without a user"},
      {"executor-manager", R"({"endpoint": "http://h:0"})", "with a port"},
      {"executor-manager", R"({"endpoint": "http://h:99999"})", "with a port"},
      {"executor-manager", R"({"endpoint": "http://h/?a"})", "without a query"},
      {"executor-manager", R"({"endpoint": "http://h\r\nX: y"})", "has control characters"},
      {"executor-manager", R"({"endpoint": 7})", "'endpoint' must be a string"},
      {"executor-manager", R"({"timeout": 600})", ""},
      {"executor-manager", R"({"timeout": 1})", ""},
      {"executor-manager", R"({"timeout": 601})", "'timeout' must be between 1 and 600"},
      {"executor-manager", R"({"max_retries": 11})", "'max_retries' must be between 0 and 10"},
      {"executor-manager", R"({"pool_size": 0})", "'pool_size' must be between 1 and 100"},
      {"executor-manager", R"({"max_memory": "1g"})", "'max_memory' is read-only"},
      {"executor-manager", R"({"max_memory": "256m", "enable_seccomp": false})", ""},
      {"executor-manager", R"({"api_key": "secret"})", ""},
      {"atoll", R"({"url": "http://h:1", "api_key": "e2b_1"})", ""},
      {"atoll", R"({"url": "http://h:1/", "api_key": "e2b_1"})", ""},
      {"atoll", R"({"url": "http://h:1/x", "api_key": "e2b_1"})", "'url' must be a URL without a"},
      {"atoll", R"({"url": "http://h:1"})", "'api_key' is required"},
      {"atoll", R"({"url": "http://h:1", "api_key": "sk-1"})", "'api_key' must begin with 'e2b_'"},
      {"e2b", R"({"api_key": "e2b_1"})", ""},
      {"e2b", R"({"api_key": ""})", "'api_key' is required"},
      {"e2b", R"({"api_key": "e2b_1", "timeout": 301})", "'timeout' must be between 5 and 300"},
      {"e2b", R"({"api_key": "e2b_1", "region": "eu"})", "'domain' is required"},
      {"e2b", R"({"api_key": "e2b_1", "region": "eu", "domain": "eu.example"})", ""},
      {"e2b", R"({"api_key": "e2b_1", "region": "asia"})", "'region' must be one of us, eu"},
      {"aliyun-codeinterpreter", R"({"access_key_secret": "s", "account_id": "1"})",
       "'access_key_id' is required"},
      {"aliyun-codeinterpreter",
       R"({"access_key_id": "LTAI1", "access_key_secret": "s", "account_id": "1"})", ""},
      {"aliyun-codeinterpreter",
       R"({"access_key_id": "LTAI1", "access_key_secret": "s", "account_id": "1", "timeout": 31})",
       "'timeout' must be between 1 and 30"},
      {"aliyun-codeinterpreter",
       R"({"access_key_id": "LTAI1", "access_key_secret": "s", "account_id": "1", "region": "x"})",
       "'region' must be one of cn-hangzhou, cn-beijing"},
  };
  for (const Case& one : cases) {
    const std::string message = verdict(one.provider, one.config);
    if (*one.message == '\0') {
      EXPECT_EQ(message, "") << one.config;
    } else {
      EXPECT_NE(message.find(one.message), std::string::npos) << one.config << ": " << message;
    }
  }
}

TEST(Schema, ValuesOfSecretsAreInNoMessage) {
  const std::string message = verdict("executor-manager", R"({"api_key": "very-secret\u0001"})");
  EXPECT_NE(message, "");
  EXPECT_EQ(message.find("very-secret"), std::string::npos);
}

TEST(Url, PartsAndBack) {
  const auto plain = parse_url("http://localhost:9385");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, 9385);
  EXPECT_EQ(plain->path, "");
  const auto tls = parse_url("https://Api.example.com/v1/");
  EXPECT_EQ(tls->port, 443);
  EXPECT_EQ(tls->authority(), "Api.example.com");
  EXPECT_EQ(tls->path, "/v1");
  const auto v6 = parse_url("http://[::1]:8080");
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->authority(), "[::1]:8080");
  EXPECT_EQ(v6->str(), "http://[::1]:8080");
}

}  // namespace
}  // namespace atl::providers
