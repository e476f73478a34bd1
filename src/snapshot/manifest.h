// manifest.json beside the images: what they are, and what must be as it was for a restore.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "snapshot/checksum.h"
#include "snapshot/snapshot.h"

namespace atl::snapshot {

inline constexpr int kManifestVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kImagesName = "images";

// The part of a host that an image depends on.
struct Host {
  std::string kernel;                     // "6.18.44-fc-v490"
  std::string architecture;               // "x86_64"
  std::string criu;                       // "4.2.1"
  std::vector<std::string> cpu_features;  // sorted
};
Result<Host> this_host(const Tools& tools);

// A file of the template that the sandbox has replaced while a kernel still uses the original.
struct KeptFile {
  std::string key;   // external_file()
  std::string path;  // in the template
  std::uint64_t size = 0;
};

struct Manifest {
  Host host;
  Facts facts;
  std::uint32_t id_count = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> mounts;  // external ones
  std::vector<KeptFile> kept_files;
  std::map<std::string, FileSum> images;  // by name
};
std::string to_text(const Manifest& manifest);
// data_loss: not a manifest; failed_precondition: of another version.
Result<Manifest> manifest_from_text(std::string_view text);
// From the directory of a dump. not_found if it has none.
Result<Manifest> read_manifest(const sys::UniqueFd& directory);

// failed_precondition, naming what differs. Kernels may differ in their last number, CRIUs too;
// the CPU must have at least the features.
Result<void> check_host(const Manifest& manifest, const Host& here);
Result<void> check_facts(const Manifest& manifest, const Facts& facts);

}  // namespace atl::snapshot
