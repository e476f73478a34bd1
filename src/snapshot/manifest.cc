#include "snapshot/manifest.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "base/json.h"
#include "sys/files.h"

namespace atl::snapshot {
namespace {

constexpr std::size_t kMaxManifest = 4u << 20;
constexpr std::size_t kMaxCpuinfo = 16u << 20;

Error damaged() { return make_error(Errc::data_loss, "the manifest of the dump is damaged"); }
Error foreign(std::string what) { return make_error(Errc::failed_precondition, std::move(what)); }

// "6.18" of "6.18.44-fc".
std::string_view major_minor(std::string_view version) {
  const std::size_t first = version.find('.');
  if (first == std::string_view::npos) return version;
  return version.substr(0, version.find_first_not_of("0123456789", first + 1));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    words.emplace_back(text.substr(0, text.find(' ')));
    text.remove_prefix(words.back().size());
  }
}

Result<std::vector<std::string>> cpu_features() {
  ATOLL_TRY_ASSIGN(std::string text, sys::read_trusted("/proc/cpuinfo", kMaxCpuinfo));
  for (const std::string_view key : {"\nflags\t", "\nFeatures\t"}) {
    const std::size_t at = text.find(key);
    if (at == std::string::npos) continue;
    const std::size_t colon = text.find(':', at);
    const std::size_t end = text.find('\n', at + 1);
    if (colon == std::string::npos || end == std::string::npos || colon > end) break;
    std::vector<std::string> words =
        split(std::string_view(text).substr(colon + 1, end - colon - 1));
    std::sort(words.begin(), words.end());
    return words;
  }
  return make_error(Errc::internal, "the CPU's features cannot be told");
}

// With a checksum around it: a manifest that is cut off or was touched is no longer one.
std::string wrap(std::string_view body) {
  return fmt::format("{{\"crc32c\":\"{:08x}\",\"dump\":{}}}\n", crc32c(body), body);
}

json::object to_json(const Facts& facts) {
  json::object object;
  for (const auto& [key, value] : facts) object[key] = value;
  return object;
}

template <class Range>
json::array to_array(const Range& range) {
  json::array array;
  for (const auto& item : range) array.emplace_back(item);
  return array;
}

// Throws what Boost.JSON throws; the one caller turns that into an error.
std::string text_of(const json::value& value) { return std::string(value.as_string()); }
std::vector<std::string> texts_of(const json::value& value) {
  std::vector<std::string> out;
  for (const json::value& item : value.as_array()) out.push_back(text_of(item));
  return out;
}

Manifest from_json(const json::object& object) {
  Manifest manifest;
  const json::object& host = object.at("host").as_object();
  manifest.host = {text_of(host.at("kernel")), text_of(host.at("architecture")),
                   text_of(host.at("criu")), texts_of(host.at("cpuFeatures"))};
  std::sort(manifest.host.cpu_features.begin(), manifest.host.cpu_features.end());
  for (const auto& item : object.at("facts").as_object())
    manifest.facts[std::string(item.key())] = text_of(item.value());
  manifest.id_count = object.at("idCount").to_number<std::uint32_t>();
  manifest.memory_bytes = object.at("memoryBytes").to_number<std::uint64_t>();
  manifest.mounts = texts_of(object.at("mounts"));
  for (const json::value& item : object.at("keptFiles").as_array()) {
    const json::object& file = item.as_object();
    manifest.kept_files.push_back({text_of(file.at("key")), text_of(file.at("path")),
                                   file.at("size").to_number<std::uint64_t>()});
  }
  for (const auto& item : object.at("images").as_object()) {
    const json::object& file = item.value().as_object();
    manifest.images[std::string(item.key())] = {file.at("size").to_number<std::uint64_t>(),
                                                file.at("crc32c").to_number<std::uint32_t>()};
  }
  return manifest;
}

}  // namespace

Result<Host> this_host(const Tools& tools) {
  utsname name{};
  if (::uname(&name) != 0) return errno_error("uname");
  Host host{name.release, name.machine, tools.version, {}};
  ATOLL_TRY_ASSIGN(host.cpu_features, cpu_features());
  return host;
}

std::string to_text(const Manifest& manifest) {
  json::array kept;
  for (const KeptFile& file : manifest.kept_files)
    kept.push_back(json::object{{"key", file.key}, {"path", file.path}, {"size", file.size}});
  json::object images;
  for (const auto& [name, sum] : manifest.images)
    images[name] = json::object{{"size", sum.size}, {"crc32c", sum.crc}};
  const json::object object = {
      {"version", kManifestVersion},
      {"host", json::object{{"kernel", manifest.host.kernel},
                            {"architecture", manifest.host.architecture},
                            {"criu", manifest.host.criu},
                            {"cpuFeatures", to_array(manifest.host.cpu_features)}}},
      {"facts", to_json(manifest.facts)},
      {"idCount", manifest.id_count},
      {"memoryBytes", manifest.memory_bytes},
      {"mounts", to_array(manifest.mounts)},
      {"keptFiles", std::move(kept)},
      {"images", std::move(images)}};
  const std::string body = json::serialize(object);
  return wrap(body);
}

Result<Manifest> manifest_from_text(std::string_view text) {
  constexpr std::size_t kFrame = std::string_view(R"({"crc32c":"00000000","dump":)").size();
  if (text.size() < kFrame + 2) return damaged();
  const std::string_view body = text.substr(kFrame, text.size() - kFrame - 2);
  if (wrap(body) != text) return damaged();
  auto parsed = parse_json(body);
  if (!parsed || !parsed->is_object()) return damaged();
  const json::value* version = parsed->as_object().if_contains("version");
  if (version == nullptr || !version->is_int64()) return damaged();
  if (version->as_int64() != kManifestVersion)
    return foreign(fmt::format("the dump has version {} and this program reads {}",
                               version->as_int64(), kManifestVersion));
  try {
    return from_json(parsed->as_object());
  } catch (const std::exception&) {
    return damaged();
  }
}

Result<Manifest> read_manifest(const sys::UniqueFd& directory) {
  auto text = sys::read_beneath(directory, kManifestName, kMaxManifest);
  if (!text && text.error().sys_errno == ENOENT)
    return make_error(Errc::not_found, "there is no complete dump");
  if (!text && text.error().code == Errc::out_of_range) return damaged();
  if (!text) return std::move(text).error();
  return manifest_from_text(*text);
}

Result<Facts> read_facts(const sys::UniqueFd& directory) {
  ATOLL_TRY_ASSIGN(Manifest manifest, read_manifest(directory));
  return std::move(manifest.facts);
}

Result<void> check_host(const Manifest& manifest, const Host& here) {
  const Host& there = manifest.host;
  if (there.architecture != here.architecture)
    return foreign(fmt::format("the dump is from a machine of type {}", there.architecture));
  if (major_minor(there.kernel) != major_minor(here.kernel))
    return foreign(
        fmt::format("the dump is from kernel {}, this is {}", there.kernel, here.kernel));
  if (major_minor(there.criu) != major_minor(here.criu))
    return foreign(fmt::format("the dump is from CRIU {}, this is {}", there.criu, here.criu));
  std::vector<std::string> missing;
  std::set_difference(there.cpu_features.begin(), there.cpu_features.end(),
                      here.cpu_features.begin(), here.cpu_features.end(),
                      std::back_inserter(missing));
  if (!missing.empty())
    return foreign(fmt::format("this CPU lacks {} and {} other features of the dump's",
                               missing.front(), missing.size() - 1));
  return {};
}

Result<void> check_facts(const Manifest& manifest, const Facts& facts) {
  for (const auto& [key, value] : facts) {
    const auto found = manifest.facts.find(key);
    if (found == manifest.facts.end() || found->second != value)
      return foreign(fmt::format("the dump was made with another {}", key));
  }
  for (const auto& [key, value] : manifest.facts) {
    if (!facts.contains(key)) return foreign(fmt::format("the dump needs a {}", key));
  }
  return {};
}

}  // namespace atl::snapshot
