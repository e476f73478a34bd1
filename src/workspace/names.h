// Names of workspaces, paths in them, and the keys of blobs that they become.
//
//   m/TEAM/NAME                                  settings of a workspace (JSON); it exists
//   i/TEAM/NAME/PATH/@VERSION.SIZE.SHA256.DATA   one version of a file; all of it is in the key
//   d/TEAM/NAME/XX/DATA                          its content
//
// A version is published by its key below i/, when its content is kept: no two writers ever change
// one blob, so that several servers can share a bucket without a lock. The versions of one path
// are neighbours in the order of keys, the oldest first.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "workspace/workspaces.h"

namespace atl::workspace {

// 1 to 64 of [A-Za-z0-9._-], the first one a letter or digit. invalid_argument.
Result<void> check_name(std::string_view name);

// The path as it is kept: absolute, one '/' between components. A missing first '/' is added.
// invalid_argument: empty, ".", "..", control characters, not UTF-8, too long, too deep, a '/' at
// the end.
Result<std::string> normalise_path(std::string_view path);
// The same for a folder, which may have a '/' at its end. "/" is all of the workspace; it is the
// only answer that ends with a '/'.
Result<std::string> normalise_folder(std::string_view path);

inline constexpr std::size_t kMaxPath = 600;  // of the encoded path
inline constexpr std::size_t kMaxPathDepth = 64;

// Which workspace, in keys.
struct Place {
  std::string team;
  std::string name;
  std::string settings() const;                       // m/TEAM/NAME
  std::string entries() const;                        // i/TEAM/NAME/
  std::string contents() const;                       // d/TEAM/NAME/
  std::string versions(std::string_view path) const;  // i/TEAM/NAME/PATH/@
  std::string below(std::string_view folder) const;   // i/TEAM/NAME/PATH/
  std::string content(std::string_view data) const;   // d/TEAM/NAME/XX/DATA
  auto operator<=>(const Place&) const = default;
};

// One version of a file, as the key of its entry has it.
struct Version {
  File file;
  std::string data;  // name of its content
};
std::string entry_key(const Place& place, const Version& version);
// nullopt: not one of ours.
std::optional<Version> parse_entry(const Place& place, std::string_view key);

// "0006428f3a1b2c3-9f8e7d6c": sorts by time. nullopt: not a version.
std::string make_version(Timestamp at);
std::optional<Timestamp> time_of_version(std::string_view version);

// SERVER-TIME-RANDOM.
std::string make_data(std::string_view server, Timestamp at);
std::optional<Timestamp> time_of_data(std::string_view data);
// The data that the key of a content names; nullopt: not one.
std::optional<std::string> data_of_key(std::string_view key);
// The workspace that the key of a content belongs to.
std::optional<Place> place_of_content(std::string_view key);

}  // namespace atl::workspace
