// One template as its manifest describes it.
//
// manifest.json, version 1: {"version":1, "templateID":"<20 of [a-z0-9]>", "names":["base"],
// "buildID":"<uuid>", "cpuCount":2, "memoryMB":512, "diskMB":5120, "envdVersion":"0.6.13",
// "createdAt":"<RFC 3339>", "defaultUser":"user"}; optional: "startCommand":"<shell command>",
// "rootfs":"<name of another template>", "zygote":true.
//
// "zygote" lets the warden run the template's Python as itself, to fork warm kernels from
// (docs/design/0005): only recipes that are part of Atoll have it, written by the template builder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/timestamp.h"

namespace atl::templates {

struct Template {
  std::string dir;  // directory below templates/ that has the root: what the runtime calls it
  std::string id;
  std::vector<std::string> names;
  std::string build_id;
  std::uint32_t cpu_count = 2;
  std::uint32_t memory_mb = 512;
  std::uint32_t disk_mb = 5120;
  std::string envd_version;
  Timestamp created_at{};
  std::string default_user = "user";
  std::string start_command;  // run by the agent at every boot; may be empty
  std::string rootfs;         // name of the template whose root this one shares; empty: its own
  bool zygote = false;        // trusted: a Python of this template may be kept loaded outside

  // What the API shows as `alias`.
  std::string_view alias() const {
    return names.empty() ? std::string_view() : std::string_view(names.front());
  }
};

// invalid_argument names the field that is wrong.
Result<Template> parse_manifest(std::string_view text, std::string dir);

}  // namespace atl::templates
