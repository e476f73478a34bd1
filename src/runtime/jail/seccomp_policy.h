// Which system calls a sandbox may make.
//
// Two filters are installed, one after the other, and the stricter answer of the two counts:
//   1. the allow-list: a call that is not in the table does not exist (ENOSYS), whatever the kernel
//   has learnt since;
//   2. the rules: calls that exist but are refused with a fitting errno, by themselves or because
//   of an argument.
// Where both refuse, the one installed last decides the errno, so the rules come second.
// Comparisons look at the low 32 bits only where the kernel does the same: a value with bits above
// would pass otherwise and still mean the same to the kernel. Any other ABI than the native 64-bit
// one (i386, x32) ends the process.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace atl::jail {

struct SeccompPrograms {
  std::vector<sock_filter> allow_list;
  std::vector<sock_filter> rules;
};

// Compiled once per warden; a launch only installs the result.
Result<SeccompPrograms> compile_seccomp_policy();

// The tables, for tests and for the documentation.
struct AllowedCall {
  const char* name;
  int number = -1;  // for calls that the seccomp library has no name for
};
std::span<const AllowedCall> allowed_calls();

struct ArgumentMatch {
  unsigned index;
  std::uint64_t mask;
  std::uint64_t value;  // matches if (argument & mask) == value
};
struct RefusedCall {
  std::string name;
  int error;
  std::vector<ArgumentMatch> when;  // all of them; empty = always
};
std::vector<RefusedCall> refused_calls();

}  // namespace atl::jail
