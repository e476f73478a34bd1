#include "executor/artifacts.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/encoding.h"

namespace atl::executor {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTypes = {{
    {"png", "image/png"},
    {"jpg", "image/jpeg"},
    {"jpeg", "image/jpeg"},
    {"svg", "image/svg+xml"},
    {"pdf", "application/pdf"},
    {"csv", "text/csv"},
    {"json", "application/json"},
    {"html", "text/html"},
}};

}  // namespace

std::string_view mime_type_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string extension(name.substr(dot + 1));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  for (const auto& [known, type] : kTypes) {
    if (extension == known) return type;
  }
  return {};
}

bool is_artifact_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
         is_valid_utf8(name);
}

std::vector<client::Entry> choose_artifacts(std::vector<client::Entry> entries) {
  std::erase_if(entries, [](const client::Entry& entry) {
    return entry.type != client::EntryType::file || !entry.symlink_target.empty() ||
           entry.size == 0 || entry.size > kMaxArtifactBytes || !is_artifact_name(entry.name) ||
           mime_type_of(entry.name).empty();
  });
  std::sort(entries.begin(), entries.end(),
            [](const client::Entry& a, const client::Entry& b) { return a.name < b.name; });
  if (entries.size() > kMaxArtifacts) {
    entries.erase(entries.begin() + std::ptrdiff_t(kMaxArtifacts), entries.end());
  }
  return entries;
}

net::Task<Result<std::vector<Artifact>>> collect_artifacts(client::Inside inside,
                                                           std::string directory) {
  std::vector<Artifact> out;
  auto listing = client::list_directory(inside, directory);
  auto listed = co_await std::move(listing);
  if (!listed.ok()) {
    // The code may have removed the directory, or put a file in its place.
    if (listed.error().code != Errc::unavailable) co_return out;
    co_return std::move(listed).error();
  }
  for (const client::Entry& entry : choose_artifacts(std::move(*listed))) {
    auto reading = client::read_file(inside, directory + "/" + entry.name, kMaxArtifactBytes);
    auto bytes = co_await std::move(reading);
    if (!bytes.ok() && bytes.error().code == Errc::unavailable) co_return std::move(bytes).error();
    if (!bytes.ok() || bytes->empty()) continue;
    out.push_back({entry.name, mime_type_of(entry.name), bytes->size(), base64_encode(*bytes)});
  }
  co_return out;
}

}  // namespace atl::executor
