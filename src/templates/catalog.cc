#include "templates/catalog.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/log.h"
#include "templates/reference.h"

namespace atl::templates {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxManifest = 64 * 1024;

// Names that clients send for a language instead of a template.
constexpr std::string_view kLanguageAliases[] = {"python", "python3", "nodejs", "javascript",
                                                 "bash"};
constexpr std::string_view kDefaultTemplate = "base";

Result<Template> read_template(const fs::path& dir) {
  const fs::path file = dir / "manifest.json";
  std::error_code ec;
  const std::uintmax_t size = fs::file_size(file, ec);
  if (ec) return make_error(Errc::not_found, "manifest.json: " + ec.message());
  if (size > kMaxManifest) return make_error(Errc::invalid_argument, "manifest.json is too large");
  std::ifstream in(file, std::ios::binary);
  std::string text(std::size_t(size), '\0');
  in.read(text.data(), std::streamsize(text.size()));
  if (!in) return make_error(Errc::internal, "manifest.json cannot be read");
  return parse_manifest(text, dir.filename().string());
}

const Template* by_name(const std::vector<Template>& templates, std::string_view name) {
  for (const Template& t : templates) {
    if (std::find(t.names.begin(), t.names.end(), name) != t.names.end()) return &t;
  }
  return nullptr;
}

// A template that shares a root runs from the directory of the one that has it. One whose root is
// not there, or is itself a shared one, is left out.
void find_shared_roots(std::vector<Template>& templates) {
  std::vector<Template> whole;
  std::copy_if(templates.begin(), templates.end(), std::back_inserter(whole),
               [](const Template& t) { return t.rootfs.empty(); });
  std::erase_if(templates, [&](Template& t) {
    if (t.rootfs.empty()) return false;
    const Template* root = by_name(whole, t.rootfs);
    if (root == nullptr) {
      log::warn("a template is left out",
                {{"template", t.dir},
                 {"error", "it shares the root of '" + t.rootfs + "', which is not there"}});
      return true;
    }
    t.dir = root->dir;
    return false;
  });
}

std::vector<Template> read_all(const fs::path& dir) {
  std::vector<Template> templates;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || !it->is_directory(ec)) continue;  // dot names are builds under way
    auto parsed = read_template(it->path());
    if (parsed.ok()) {
      templates.push_back(std::move(*parsed));
    } else {
      log::warn("a template is left out", {{"template", name}, {"error", parsed.error().message}});
    }
  }
  if (ec) log::warn("the templates cannot be listed", {{"error", ec.message()}});
  find_shared_roots(templates);
  std::sort(templates.begin(), templates.end(),
            [](const Template& a, const Template& b) { return a.id < b.id; });
  return templates;
}

const Template* by_id(const std::vector<Template>& templates, std::string_view id) {
  for (const Template& t : templates) {
    if (t.id == id) return &t;
  }
  return nullptr;
}

}  // namespace

Catalog::Snapshot Catalog::current() {
  std::error_code ec;
  const auto mtime = fs::last_write_time(dir_, ec);
  std::lock_guard lock(mutex_);
  if (!ec && templates_ && mtime == read_at_mtime_) return templates_;
  // The mtime from before the read is remembered: a change during the read makes the next lookup
  // read again.
  templates_ =
      std::make_shared<const std::vector<Template>>(ec ? std::vector<Template>() : read_all(dir_));
  read_at_mtime_ = mtime;
  return templates_;
}

Result<Template> Catalog::find(std::string_view text) {
  ATOLL_TRY_ASSIGN(const Reference reference, parse_reference(text));
  const Snapshot templates = current();
  const Template* found = by_name(*templates, reference.alias);
  if (found == nullptr && reference.space.empty()) {
    found = by_id(*templates, reference.alias);
    const bool language = std::find(std::begin(kLanguageAliases), std::end(kLanguageAliases),
                                    reference.alias) != std::end(kLanguageAliases);
    if (found == nullptr && language) found = by_name(*templates, kDefaultTemplate);
  }
  if (found == nullptr) {
    return make_error(Errc::not_found, "template '" + std::string(text) + "' not found");
  }
  if (!reference.tag.empty() && reference.tag != found->build_id) {
    return make_error(Errc::not_found, "tag '" + reference.tag + "' does not exist for template '" +
                                           reference.alias + "'");
  }
  return *found;
}

std::vector<Template> Catalog::list() { return *current(); }

}  // namespace atl::templates
