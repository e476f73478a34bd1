// Zygote: a process with a template's Python and its libraries loaded, from which nurseries are
// forked into sandboxes. This file starts one; warden_warm.cc says when, and what becomes of it.
// What it does itself is in kernels/zygote and kernels/python/zygote.py.
//
// Theory of operation. A zygote runs the template's Python as the host's root, so only templates
// that root has made and marked have one. It lives in the host's pid namespace (only from an
// ancestor can a process enter a sandbox's), in mount, network, IPC and UTS namespaces of its own,
// over the template bound read-only, with three capabilities, and knows nobody but the warden. It
// ends with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/jail/launch.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace atl::jail {

struct StartedZygote {
  sys::Child process;
  sys::UniqueFd channel;
};

// Forks and returns at once; the zygote says on its channel when it is ready, or closes it. Errors:
// no such template, or one that must not have a zygote.
Result<StartedZygote> start_zygote(const LaunchHost& host, const std::string& template_id);

// "zygote": true in the manifest, and nobody but root can write the manifest or replace the root.
Result<void> check_zygote_allowed(const sys::UniqueFd& templates, const std::string& template_id);

// Steps of kernels/zygote/wire.h, as --fail-at and errors call them: "warm.filter". Empty: no such
// step.
std::string_view zygote_step_name(std::uint32_t step);
// 0: no such step.
std::uint32_t zygote_step_number(std::string_view name);

}  // namespace atl::jail
