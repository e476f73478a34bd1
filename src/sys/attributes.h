// Extended attributes, owners, modes and times of files that are open, with O_PATH too: of the file
// itself, a symbolic link is not followed.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// nullopt: it has none of that name.
Result<std::optional<std::string>> get_attribute(const UniqueFd& file, const std::string& name);
Result<std::vector<std::string>> list_attributes(const UniqueFd& file);
Result<void> set_attribute(const UniqueFd& file, const std::string& name, std::string_view value);

// Owner, mode (of a link: nothing) and times of `info`, in the order that loses none of them.
// Attributes go in between: a change of owner drops capabilities, and everything changes times.
Result<void> give_owner(const UniqueFd& file, const struct stat& info);
Result<void> give_mode_and_times(const UniqueFd& file, const struct stat& info);

// Anything but a directory, a regular file and a link, with mode 0600.
Result<void> make_node(const UniqueFd& dir, const std::string& name, mode_t type, dev_t device);
Result<std::string> read_link(const UniqueFd& link);

}  // namespace atl::sys
