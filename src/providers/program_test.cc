// Languages, the marker, and how code becomes a program.
#include "providers/program.h"

#include <gtest/gtest.h>

#include "base/encoding.h"

namespace atl::providers {
namespace {

std::string marker(std::string_view json) { return std::string(kMarker) + base64_encode(json); }

TEST(Language, Names) {
  const std::pair<const char*, Language> known[] = {
      {"", Language::python},
      {"python", Language::python},
      {"python3", Language::python},
      {"Python", Language::python},
      {"javascript", Language::javascript},
      {"nodejs", Language::javascript},
      {"NodeJS", Language::javascript},
      {"js", Language::javascript},
      {"bash", Language::bash},
  };
  for (const auto& [name, language] : known) EXPECT_EQ(parse_language(name), language) << name;
  for (const char* name : {"ruby", "python2", " python", "java"})
    EXPECT_EQ(parse_language(name), std::nullopt) << name;
  EXPECT_EQ(name_of(Language::javascript), "javascript");
}

TEST(Marker, IsCutOut) {
  const Extracted found = extract_result(
      "before\n" + marker(R"({"present":true,"value":{"a":[1,null]},"type":"json"})") +
      "\nafter\n");
  EXPECT_EQ(found.text, "before\nafter\n");
  ASSERT_TRUE(found.value);
  EXPECT_EQ(json::serialize(*found.value), R"({"a":[1,null]})");
  EXPECT_EQ(found.type, "json");
}

TEST(Marker, TextWithoutLineEndsStays) {
  const Extracted found =
      extract_result("no line end" + marker(R"({"present":true,"value":1,"type":"json"})"));
  EXPECT_EQ(found.text, "no line end");
  EXPECT_EQ(*found.value, json::value(1));
  EXPECT_EQ(extract_result("a\nb").text, "a\nb");
  EXPECT_EQ(extract_result("a\r\n").text, "a\r\n");
  EXPECT_EQ(extract_result("").text, "");
}

TEST(Marker, WhatDoesNotDecodeStays) {
  for (const std::string& line :
       {std::string(kMarker), std::string(kMarker) + "!!!", marker("not json"), marker("[1]"),
        marker(R"({"value":1})"), marker(R"({"present":"yes"})")}) {
    const Extracted found = extract_result("x\n" + line + "\n");
    EXPECT_EQ(found.text, "x\n" + line + "\n");
    EXPECT_FALSE(found.value) << line;
  }
}

TEST(Marker, TheLastOneCounts) {
  const std::string one = marker(R"({"present":true,"value":1,"type":"json"})");
  const std::string two = marker(R"({"present":true,"value":2,"type":"other"})");
  const Extracted found = extract_result(one + "\n" + two + "\n");
  EXPECT_EQ(*found.value, json::value(2));
  EXPECT_EQ(found.type, "other");
  EXPECT_FALSE(extract_result(one + "\n" + marker(R"({"present":false})") + "\n").value);
  EXPECT_TRUE(extract_result(marker(R"({"present":true})")).value->is_null());
}

TEST(Main, IsFoundByTheLookOfLines) {
  for (const char* code : {"def main():\n  pass", "x = 1\nasync def main(a, b):\n  pass",
                           "main = lambda: 1", "def main (a):\n  pass"})
    EXPECT_TRUE(defines_main(Language::python, code)) << code;
  for (const char* code : {"print(1)", "  def main():\n    pass", "def main_part(): pass",
                           "maintain = 1", "main()", "main == 1", "# def main():"})
    EXPECT_FALSE(defines_main(Language::python, code)) << code;
  for (const char* code :
       {"function main(args) {}", "async function main() {}", "const main = async () => 1",
        "export function main() {}", "export default async function main() {}",
        "module.exports = { main }", "exports.main = () => 1", "  let main = 1"})
    EXPECT_TRUE(defines_main(Language::javascript, code)) << code;
  for (const char* code : {"console.log(1)", "function mainly() {}", "main()", "const x = main"})
    EXPECT_FALSE(defines_main(Language::javascript, code)) << code;
  EXPECT_FALSE(defines_main(Language::bash, "main() {\n:\n}"));
}

std::string file_of(const Program& program, const std::string& name) {
  for (const SourceFile& file : program.files) {
    if (file.name == name) return file.content;
  }
  return "(none)";
}

TEST(Program, PlainScriptsRunAsTheyAre) {
  const auto program = make_program(Language::python, "print(1)\n", {}, "/d");
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->program, "python3");
  EXPECT_EQ(program->arguments, std::vector<std::string>{"/d/main.py"});
  EXPECT_EQ(program->files.size(), 1u);
  EXPECT_FALSE(program->calls_main);
  EXPECT_EQ(make_program(Language::bash, "echo", {}, "/d")->arguments[0], "/d/main.sh");
  EXPECT_EQ(make_program(Language::javascript, "import fs from 'fs'\n", {}, "/d")->arguments[0],
            "/d/main.mjs");
}

TEST(Program, MainIsCalledByARunner) {
  const auto program =
      make_program(Language::python, "def main(a):\n  return a\n", {{"a", "'\"\n"}}, "/d");
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->arguments, std::vector<std::string>{"/d/run.py"});
  EXPECT_EQ(file_of(*program, "arguments.json"), R"({"a":"'\"\n"})");
  EXPECT_EQ(file_of(*program, "main.py"), "def main(a):\n  return a\n")
      << "lines keep their numbers";
  const auto node = make_program(Language::javascript, "function main() {}", {}, "/d");
  EXPECT_EQ(node->arguments, std::vector<std::string>{"/d/run.cjs"});
  EXPECT_NE(file_of(*node, "main.cjs").find("module.exports.main = main"), std::string::npos);
  const auto module =
      make_program(Language::javascript, "import fs from 'fs'\nconst main = () => 1", {}, "/d");
  EXPECT_NE(file_of(*module, "main.mjs").find("export { main }"), std::string::npos);
  const auto exported = make_program(Language::javascript, "export const main = () => 1", {}, "/d");
  EXPECT_EQ(file_of(*exported, "main.mjs"), "export const main = () => 1");
}

TEST(Program, BashHasNoArguments) {
  EXPECT_EQ(make_program(Language::bash, "echo", {{"a", 1}}, "/d").error().code,
            Errc::invalid_argument);
  EXPECT_EQ(with_marker(Language::bash, "echo", {{"a", 1}}).error().code, Errc::invalid_argument);
}

TEST(Program, OneTextThatPrintsTheMarker) {
  EXPECT_EQ(*with_marker(Language::python, "print(1)", {}), "print(1)");
  const std::string text = *with_marker(Language::python, "def main(a):\n  return a\n", {{"a", 1}});
  EXPECT_TRUE(text.starts_with("def main(a):\n  return a\n"));
  EXPECT_NE(text.find(base64_encode(R"({"a":1})")), std::string::npos);
  EXPECT_NE(text.find(kMarker), std::string::npos);
}

TEST(Program, AMainForThoseWhoAlwaysCallIt) {
  EXPECT_EQ(with_main(Language::python, "def main():\n  return 1"), "def main():\n  return 1");
  EXPECT_TRUE(defines_main(Language::python, with_main(Language::python, "print(1)")));
  EXPECT_TRUE(defines_main(Language::javascript, with_main(Language::javascript, "f()")));
}

}  // namespace
}  // namespace atl::providers
