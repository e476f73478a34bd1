// The tools, one function each; a file of this folder has those of one group. Their contracts are
// api/mcp/*.json: arguments come checked and complete.
#pragma once

#include <string_view>

#include "mcp/outcome.h"
#include "mcp/tools/bench.h"

namespace atl::mcp {

using Tool = net::Task<Outcome> (*)(Bench& bench, const json::object& arguments);

// shell.cc, code.cc
net::Task<Outcome> bash_exec(Bench& bench, const json::object& arguments);
net::Task<Outcome> run_code(Bench& bench, const json::object& arguments);
// files.cc
net::Task<Outcome> read_file(Bench& bench, const json::object& arguments);
net::Task<Outcome> write_file(Bench& bench, const json::object& arguments);
net::Task<Outcome> edit_file(Bench& bench, const json::object& arguments);
// search.cc
net::Task<Outcome> glob_files(Bench& bench, const json::object& arguments);
net::Task<Outcome> grep_files(Bench& bench, const json::object& arguments);
net::Task<Outcome> list_files(Bench& bench, const json::object& arguments);
// workspace.cc
net::Task<Outcome> save_to_workspace(Bench& bench, const json::object& arguments);
net::Task<Outcome> load_from_workspace(Bench& bench, const json::object& arguments);
// lifecycle.cc
net::Task<Outcome> pause_session(Bench& bench, const json::object& arguments);
net::Task<Outcome> reset_session(Bench& bench, const json::object& arguments);

// null: there is no such tool.
Tool find_tool(std::string_view name);

// Checks the arguments, runs the tool and puts session and sandbox into its answer. `name` is that
// of a tool.
net::Task<Outcome> call_tool(Bench& bench, std::string name, json::object arguments);

}  // namespace atl::mcp
