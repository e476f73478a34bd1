#include "mcp/tools/tool.h"

#include "mcp/schema.h"

namespace atl::mcp {
namespace {

constexpr std::pair<std::string_view, Tool> kTools[] = {
    {"bash_exec", bash_exec},
    {"run_code", run_code},
    {"read_file", read_file},
    {"write_file", write_file},
    {"edit_file", edit_file},
    {"glob_files", glob_files},
    {"grep_files", grep_files},
    {"list_files", list_files},
    {"save_to_workspace", save_to_workspace},
    {"load_from_workspace", load_from_workspace},
    {"pause", pause_session},
    {"reset", reset_session},
};

std::string_view name_of(session::Came came) {
  switch (came) {
    case session::Came::created:
      return "created";
    case session::Came::resumed:
      return "resumed";
    case session::Came::reused:
      break;
  }
  return "reused";
}

net::Task<Outcome> checked_call(Bench& bench, std::string_view name, json::object arguments) {
  const Tool tool = find_tool(name);
  const json::object* definition = find_definition(name);
  ATOLL_CHECK(tool != nullptr && definition != nullptr);
  auto checked = check_arguments(definition->at("inputSchema").as_object(), std::move(arguments));
  if (!checked.ok()) co_return ToolError{"invalid_argument", checked.error().message};
  auto running = tool(bench, *checked);
  co_return co_await std::move(running);
}

}  // namespace

Tool find_tool(std::string_view name) {
  for (const auto& [known, tool] : kTools) {
    if (known == name) return tool;
  }
  return nullptr;
}

net::Task<Outcome> call_tool(Bench& bench, std::string name, json::object arguments) {
  auto calling = checked_call(bench, name, std::move(arguments));
  Outcome outcome = co_await std::move(calling);
  outcome.fields["session_id"] = bench.setting().key;
  if (const auto& acquired = bench.acquired()) {
    outcome.fields["sandbox_id"] = acquired->session.sandbox_id;
    outcome.fields["sandbox"] = name_of(acquired->came);
  }
  co_return outcome;
}

}  // namespace atl::mcp
