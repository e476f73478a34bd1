#include "executor/answer.h"

#include <gtest/gtest.h>

#include "base/encoding.h"
#include "base/json.h"
#include "executor/marker.h"

namespace atl::executor {
namespace {

using client::Entry;
using client::EntryType;

json::object encoded(const Answer& answer) {
  auto parsed = parse_json(encode(answer));
  EXPECT_TRUE(parsed.ok());
  return parsed.ok() && parsed->is_object() ? parsed->get_object() : json::object();
}

std::string marker(std::string_view json) { return std::string(kMarker) + base64_encode(json); }

TEST(Answer, EveryCaseOfTheTable) {
  struct Case {
    Ran ran;
    const char* status;
    int exit_code;
    const char* err;
    const char* resource = nullptr;
    const char* unauthorized = nullptr;
    const char* runtime = nullptr;
  };
  const Case cases[] = {
      {{.exit_code = 0, .out = "o", .err = "warning"}, "success", 0, "warning"},
      {{.exit_code = -1, .timed_out = true, .out = "o", .err = "x"},
       "resource_limit_exceeded",
       -124,
       "Execution timeout",
       "time"},
      {{.exit_code = 137, .out_of_memory = true, .out = "o", .err = "x"},
       "resource_limit_exceeded",
       -137,
       "Memory limit exceeded (killed by OOM)",
       "memory"},
      {{.exit_code = 137, .out = "o"}, "program_error", 137, "", nullptr, nullptr, "nonzero_exit"},
      // A child of the code was killed and the code coped with it.
      {{.exit_code = 0, .out_of_memory = true, .out = "o"}, "success", 0, ""},
      {{.exit_code = 1, .out = "o", .err = "Traceback\nMemoryError\n"},
       "resource_limit_exceeded",
       1,
       "Traceback\nMemoryError\n",
       "memory"},
      {{.exit_code = 1, .out = "o", .err = "numpy._core._exceptions._ArrayMemoryError: Unable to"},
       "resource_limit_exceeded",
       1,
       "numpy._core._exceptions._ArrayMemoryError: Unable to",
       "memory"},
      {{.exit_code = 1, .out = "o", .err = "MemoryError was avoided\nValueError: MemoryError"},
       "program_error",
       1,
       "MemoryError was avoided\nValueError: MemoryError",
       nullptr,
       nullptr,
       "nonzero_exit"},
      {{.exit_code = 1, .out = "o", .err = "[Errno 13] Permission denied: '/x'"},
       "unauthorized_access",
       1,
       "[Errno 13] Permission denied: '/x'",
       nullptr,
       "file_access"},
      {{.exit_code = 2, .out = "o", .err = "[Errno 1] Operation not permitted"},
       "unauthorized_access",
       2,
       "[Errno 1] Operation not permitted",
       nullptr,
       "disallowed_syscall"},
      // Only of those that failed.
      {{.exit_code = 0, .out = "o", .err = "Permission denied"}, "success", 0, "Permission denied"},
      {{.exit_code = 3, .out = "o", .err = "e"},
       "program_error",
       3,
       "e",
       nullptr,
       nullptr,
       "nonzero_exit"},
  };
  for (const Case& one : cases) {
    const json::object got = encoded(answer_of(one.ran));
    const auto text = [](const char* expected) {
      return expected != nullptr ? json::value(expected) : json::value(nullptr);
    };
    EXPECT_EQ(got.at("status"), one.status);
    EXPECT_EQ(got.at("exit_code"), one.exit_code) << one.status;
    EXPECT_EQ(got.at("stderr"), one.err) << one.status;
    EXPECT_EQ(got.at("stdout"), "o") << "what it had said is kept, whatever came of it";
    EXPECT_EQ(got.at("resource_limit_type"), text(one.resource)) << one.status;
    EXPECT_EQ(got.at("unauthorized_access_type"), text(one.unauthorized)) << one.status;
    EXPECT_EQ(got.at("runtime_error_type"), text(one.runtime)) << one.status;
    EXPECT_TRUE(got.at("detail").is_null());
    EXPECT_TRUE(got.at("artifacts").as_array().empty());
    EXPECT_TRUE(got.at("result").is_null());
  }
}

TEST(Answer, WithoutARun) {
  const auto expect = [](const Answer& answer, int exit_code, const char* err, const char* detail) {
    const json::object got = encoded(answer);
    EXPECT_EQ(got.at("status"), "program_runner_error");
    EXPECT_EQ(got.at("exit_code"), exit_code);
    EXPECT_EQ(got.at("stderr"), err);
    EXPECT_EQ(got.at("detail"), detail);
    EXPECT_EQ(got.at("stdout"), "");
    EXPECT_TRUE(got.at("time_used_ms").is_null());
  };
  expect(busy(), -10, "Container pool is busy", "no_available_container");
  expect(rate_limited(), -429, "Too many requests, please try again later",
         "Too many requests, please try again later");
  expect(unsafe("Line 1: import of os"), -999, "Line 1: import of os", "Code is unsafe");
  expect(internal_error("why"), -3, "why", "internal_error");
}

TEST(Answer, TheValueGoesOutAsTheTextThatItIs) {
  Ran ran;
  ran.value = R"({"n":123456789012345678901234567890})";
  EXPECT_TRUE(
      encode(answer_of(ran))
          .ends_with(
              R"(,"result":{"present":true,"value":{"n":123456789012345678901234567890},"type":"json"}})"));
  ran.exit_code = 1;
  EXPECT_TRUE(encode(answer_of(ran)).ends_with(R"(,"result":null})"));
}

TEST(Answer, WhatIsNoTextIsShown) {
  Ran ran;
  ran.out = "a\xff\xc3(\xe2\x82\xac\xf0\x9f";
  EXPECT_EQ(encoded(answer_of(ran)).at("stdout"),
            "a\xef\xbf\xbd\xef\xbf\xbd(\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Marker, LinesThatDecodeAreCutOut) {
  const std::string one = marker(R"({"present":true,"value":{"a":1},"type":"json"})");
  auto cut = cut_markers("before\n" + one + "\nafter\n");
  EXPECT_EQ(cut.out, "before\nafter\n");
  EXPECT_EQ(cut.result, R"({"present":true,"value":{"a":1},"type":"json"})");

  EXPECT_EQ(cut_markers(one).out, "");
  EXPECT_EQ(cut_markers(one + "\r\n").out, "");
  EXPECT_EQ(cut_markers("x\n" + one).out, "x\n");

  // The last one counts; one without a value takes nothing back.
  const std::string two = marker(R"({"present":true,"value":2,"type":"json"})");
  const std::string none = marker(R"({"present":false})");
  cut = cut_markers(one + "\nmiddle\n" + two + "\n" + none + "\n");
  EXPECT_EQ(cut.out, "middle\n");
  EXPECT_EQ(cut.result, R"({"present":true,"value":2,"type":"json"})");
}

TEST(Marker, LinesThatDoNotDecodeStay) {
  for (const std::string& line :
       {std::string(kMarker), std::string(kMarker) + "!!!", marker("no JSON"), marker("[]"),
        marker("{}"), marker(R"({"present":true})"), marker(R"({"present":1,"value":1})"),
        "x" + marker(R"({"present":true,"value":1})"), std::string("__RAGFLOW_RESULT__ e30=")}) {
    const auto cut = cut_markers("a\n" + line + "\nb");
    EXPECT_EQ(cut.out, "a\n" + line + "\nb");
    EXPECT_FALSE(cut.result) << line;
  }
  EXPECT_EQ(cut_markers("").out, "");
  EXPECT_EQ(cut_markers("\n\n").out, "\n\n");
}

TEST(Marker, CountsWhenMainSaidNothing) {
  Ran ran;
  ran.out = "x\n" + marker(R"({"present":true,"value":7,"type":"json"})") + "\n";
  ran.value = "null";
  EXPECT_EQ(answer_of(ran).result, R"({"present":true,"value":7,"type":"json"})");
  EXPECT_EQ(answer_of(ran).out, "x\n");
  ran.value = "8";
  EXPECT_EQ(answer_of(ran).result, R"({"present":true,"value":8,"type":"json"})");
  ran.value.reset();
  EXPECT_EQ(answer_of(ran).result, R"({"present":true,"value":7,"type":"json"})");
}

TEST(Artifacts, Names) {
  for (const char* good : {"a.png", "plot 1.svg", "a.b.csv", "\xc3\xa9.json", "-x.html"})
    EXPECT_TRUE(is_artifact_name(good)) << good;
  for (const std::string_view bad :
       {"", ".png", ".hidden.csv", "..", "a/b.png", "/etc/x.csv", "a\\b.png", "\xff.png"})
    EXPECT_FALSE(is_artifact_name(bad)) << bad;
  EXPECT_FALSE(is_artifact_name(std::string("a\0.png", 6)));
  EXPECT_FALSE(is_artifact_name(std::string(256, 'a')));
}

TEST(Artifacts, TypesByExtension) {
  EXPECT_EQ(mime_type_of("a.png"), "image/png");
  EXPECT_EQ(mime_type_of("a.JPG"), "image/jpeg");
  EXPECT_EQ(mime_type_of("a.jpeg"), "image/jpeg");
  EXPECT_EQ(mime_type_of("a.svg"), "image/svg+xml");
  EXPECT_EQ(mime_type_of("a.pdf"), "application/pdf");
  EXPECT_EQ(mime_type_of("a.csv"), "text/csv");
  EXPECT_EQ(mime_type_of("a.json"), "application/json");
  EXPECT_EQ(mime_type_of("a.html"), "text/html");
  for (const char* none : {"a", "png", "a.", "a.txt", "a.png.exe", "a.py"})
    EXPECT_EQ(mime_type_of(none), "") << none;
}

TEST(Artifacts, WhichOnesGo) {
  const auto entry = [](std::string name, EntryType type, std::uint64_t size) {
    Entry out;
    out.name = std::move(name);
    out.type = type;
    out.size = size;
    return out;
  };
  std::vector<Entry> entries = {entry("b.csv", EntryType::file, 1),
                                entry("empty.csv", EntryType::file, 0),
                                entry("a.png", EntryType::file, 10 << 20),
                                entry("large.png", EntryType::file, (10 << 20) + 1),
                                entry("dir.png", EntryType::directory, 4096),
                                entry("link.png", EntryType::symlink, 5),
                                entry("socket.png", EntryType::other, 5),
                                entry(".dot.png", EntryType::file, 5),
                                entry("run.sh", EntryType::file, 5)};
  Entry linked = entry("linked.png", EntryType::file, 5);
  linked.symlink_target = "/etc/passwd";
  entries.push_back(linked);
  auto chosen = choose_artifacts(entries);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].name, "a.png");
  EXPECT_EQ(chosen[1].name, "b.csv");

  entries.clear();
  for (int i = 0; i < 25; ++i)
    entries.push_back(entry(std::to_string(i + 100) + ".json", EntryType::file, 2));
  EXPECT_EQ(choose_artifacts(entries).size(), kMaxArtifacts);
}

}  // namespace
}  // namespace atl::executor
