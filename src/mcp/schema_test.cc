#include "mcp/schema.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::mcp {
namespace {

const json::object& input_of(std::string_view tool) {
  return find_definition(tool)->at("inputSchema").as_object();
}

Result<json::object> check(std::string_view tool, std::string_view arguments) {
  return check_arguments(input_of(tool), parse_json(arguments)->as_object());
}

std::string refusal(std::string_view tool, std::string_view arguments) {
  auto checked = check(tool, arguments);
  EXPECT_FALSE(checked.ok()) << arguments;
  return checked.ok() ? "" : checked.error().message;
}

TEST(Schema, EveryToolHasItsContract) {
  std::set<std::string> names;
  for (const json::value& definition : tool_definitions()) {
    const json::object& tool = definition.as_object();
    const std::string name(tool.at("name").as_string());
    names.insert(name);
    EXPECT_GT(tool.at("description").as_string().size(), 40u) << name;
    const json::object& input = tool.at("inputSchema").as_object();
    EXPECT_EQ(input.at("type"), "object") << name;
    EXPECT_EQ(input.at("additionalProperties"), false) << name;
    for (const auto& property : input.at("properties").as_object()) {
      const json::object& rule = property.value().as_object();
      EXPECT_TRUE(rule.at("description").is_string()) << name;
      const std::string_view type(rule.at("type").as_string());
      EXPECT_TRUE(type == "string" || type == "integer" || type == "boolean") << name;
      if (type == "string") {
        EXPECT_TRUE(rule.contains("maxLength")) << name;
      }
      if (type == "integer") {
        EXPECT_TRUE(rule.contains("minimum") && rule.contains("maximum")) << name;
      }
      // A default obeys its own rule.
      if (rule.contains("default")) {
        json::object one;
        one[property.key()] = rule.at("default");
        json::object alone{{"properties", json::object{{property.key(), rule}}},
                           {"required", json::array()}};
        EXPECT_TRUE(check_arguments(alone, one).ok()) << name;
      }
    }
    for (const json::value& required : input.at("required").as_array())
      EXPECT_TRUE(input.at("properties").as_object().contains(required.as_string())) << name;
    const json::object& output = tool.at("outputSchema").as_object();
    EXPECT_EQ(output.at("type"), "object") << name;
    for (const char* field : {"session_id", "error", "message"})
      EXPECT_TRUE(output.at("properties").as_object().contains(field)) << name;
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"bash_exec", "run_code", "read_file", "write_file", "edit_file",
                                   "glob_files", "grep_files", "list_files", "save_to_workspace",
                                   "load_from_workspace", "pause", "reset"}));
  EXPECT_EQ(find_definition("rm"), nullptr);
}

TEST(Schema, DefaultsAreThoseOfTheContract) {
  EXPECT_EQ(check("bash_exec", R"({"command":"ls"})")->at("timeout"), 30);
  EXPECT_EQ(check("read_file", R"({"path":"a"})")->at("offset"), 0);
  EXPECT_EQ(check("read_file", R"({"path":"a"})")->at("limit"), 2000);
  EXPECT_EQ(check("run_code", R"({"code":"1"})")->at("language"), "python");
  EXPECT_EQ(check("list_files", "{}")->at("depth"), 1);
  EXPECT_EQ(check("list_files", "{}")->at("path"), "/home/user");
  EXPECT_FALSE(flag_argument(*check("glob_files", R"({"pattern":"*"})"), "newest_first"));
}

TEST(Schema, WhatIsWrongIsSaid) {
  EXPECT_EQ(refusal("bash_exec", "{}"), "the argument 'command' is missing");
  EXPECT_EQ(refusal("bash_exec", R"({"command":""})"), "'command' is empty");
  EXPECT_EQ(refusal("bash_exec", R"({"command":5})"), "'command' must be a string");
  EXPECT_EQ(refusal("bash_exec", R"({"command":"ls","timeout":121})"),
            "'timeout' must be an integer from 1 to 120");
  EXPECT_EQ(refusal("bash_exec", R"({"command":"ls","timeout":0})"),
            "'timeout' must be an integer from 1 to 120");
  EXPECT_EQ(refusal("bash_exec", R"({"command":"ls","timeout":1.5})"),
            "'timeout' must be an integer from 1 to 120");
  EXPECT_EQ(refusal("bash_exec", R"({"command":"ls","timeout":18446744073709551615})"),
            "'timeout' must be an integer from 1 to 120");
  EXPECT_EQ(refusal("bash_exec", R"({"command":"ls","cwd":"/"})"),
            "there is no argument 'cwd'; there are: command, timeout");
  EXPECT_EQ(refusal("pause", R"({"now":true})"), "there is no argument 'now'; there are: none");
  EXPECT_EQ(refusal("edit_file", R"({"path":"a","old_text":"","new_text":"x"})"),
            "'old_text' is empty");
  EXPECT_EQ(refusal("glob_files", R"({"pattern":"*","newest_first":"yes"})"),
            "'newest_first' must be true or false");
}

TEST(Schema, WhatModelsWrite) {
  EXPECT_EQ(check("bash_exec", R"({"command":"ls","timeout":60.0})")->at("timeout"), 60);
  EXPECT_EQ(check("bash_exec", R"({"command":"ls","timeout":null})")->at("timeout"), 30);
  // Characters are counted, not bytes.
  std::string path;
  for (int i = 0; i < 4096; ++i) path += "\xC3\xA4";
  EXPECT_TRUE(check("read_file", R"({"path":")" + path + R"("})").ok());
  EXPECT_FALSE(check("read_file", R"({"path":"x)" + path + R"("})").ok());
}

}  // namespace
}  // namespace atl::mcp
