#include "workspace_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/workspace.h"
#include "remote_verb.h"

namespace {

using namespace atl::cli;

using Verb = atl::Result<int> (*)(const WorkspaceOptions&);

}  // namespace

void add_workspace_verbs(CLI::App& app, std::string& home, int& exit_code) {
  // The lambdas keep it alive as long as the application.
  auto options = std::make_shared<WorkspaceOptions>();
  CLI::App* workspace =
      app.add_subcommand("workspace", "files that outlive sandboxes, with versions");
  workspace->require_subcommand(1);

  const auto add = [&](const char* name, const char* help, Verb verb) {
    return add_remote_verb(*workspace, options, home, exit_code, name, help, verb);
  };
  const auto add_name = [&](CLI::App* command) {
    return command->add_option("workspace", options->name, "its name");
  };

  CLI::App* list = add("ls", "list workspaces, or the files of one", workspace_list);
  add_name(list);
  list->add_option("prefix", options->path, "only this folder or file")->default_str("/");
  CLI::App* put = add("put", "write a file of this machine into a workspace", workspace_put);
  add_name(put)->required();
  put->add_option("file", options->file, "a file, or '-' for stdin")->required();
  put->add_option("path", options->path, "path in the workspace (default: the file's name)");
  CLI::App* get = add("get", "read a file of a workspace", workspace_get);
  add_name(get)->required();
  get->add_option("path", options->path, "path in the workspace")->required();
  get->add_option("file", options->file, "where to (default: its name here), or '-' for stdout");
  get->add_option("--version", options->version, "an old version, as `versions` shows it");
  CLI::App* remove =
      add("rm", "delete a file with its versions, a folder, or a workspace", workspace_remove);
  add_name(remove)->required();
  remove->add_option("path", options->path, "path in the workspace");
  remove->add_flag("-r,--recursive", options->recursive, "all below the path");
  remove->add_flag("--all", options->all, "the workspace with all that is in it");
  CLI::App* versions = add("versions", "versions of a file, the newest first", workspace_versions);
  add_name(versions)->required();
  versions->add_option("path", options->path, "path in the workspace")->required();
  CLI::App* restore = add("restore", "make an old version the newest one again", workspace_restore);
  add_name(restore)->required();
  restore->add_option("path", options->path, "path in the workspace")->required();
  restore->add_option("version", options->version, "as `versions` shows it")->required();
  CLI::App* save =
      add("save", "copy a file or folder of a sandbox into a workspace", workspace_save);
  add_name(save)->required();
  save->add_option("sandbox", options->sandbox, "id of a sandbox")->required();
  save->add_option("sandbox-path", options->sandbox_path, "what to copy")->required();
  save->add_option("path", options->path, "path in the workspace (default: its name)");
  CLI::App* load =
      add("load", "copy a file or folder of a workspace into a sandbox", workspace_load);
  add_name(load)->required();
  load->add_option("path", options->path, "path in the workspace")->required();
  load->add_option("sandbox", options->sandbox, "id of a sandbox")->required();
  load->add_option("sandbox-path", options->sandbox_path, "where to (default: its name at home)");
  load->add_option("--version", options->version, "an old version of a file");
  CLI::App* quota = add("quota", "show or set what a workspace may hold", workspace_quota);
  add_name(quota)->required();
  quota->add_option("--bytes", options->max_bytes, "of all versions, as 500M or 20G")
      ->transform(CLI::AsSizeValue(false));
  quota->add_option("--files", options->max_files, "how many files");
  quota->add_option("--versions", options->keep_versions, "how many of each file are kept");
}
