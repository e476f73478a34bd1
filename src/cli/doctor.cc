#include "cli/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/json.h"
#include "certs/certs.h"
#include "cli/cert.h"
#include "cli/home.h"
#include "cli/sockets.h"
#include "cli/up.h"
#include "runtime/jail/host_checks.h"
#include "snapshot/snapshot.h"
#include "sys/files.h"
#include "templates/catalog.h"

namespace atl::cli {
namespace {

using jail::Check;

// An empty directory that goes with this object.
class ScratchDir {
 public:
  static Result<ScratchDir> make() {
    std::string path = "/var/tmp/atoll-doctor-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return errno_error("make " + path);
    ScratchDir dir(path);
    ATOLL_TRY_ASSIGN(dir.fd_, sys::open_trusted(path, O_RDONLY | O_DIRECTORY));
    return dir;
  }
  ScratchDir(ScratchDir&& other) noexcept = default;
  ~ScratchDir() {
    std::error_code ignored;
    if (path_) std::filesystem::remove_all(*path_, ignored);
  }
  const sys::UniqueFd& fd() const { return fd_; }

 private:
  explicit ScratchDir(std::string path) : path_(std::make_unique<std::string>(std::move(path))) {}
  std::unique_ptr<std::string> path_;
  sys::UniqueFd fd_;
};

Check check_port(const DoctorOptions& options) {
  if (auto running = find_server(options.home); running.ok()) {
    return {"port", Check::Status::ok, "a server of this home runs at " + running->url, ""};
  }
  auto port = listen_on(options.listen);
  if (port.ok()) return {"port", Check::Status::ok, options.listen + " is free", ""};
  return {"port", Check::Status::fail, port.error().message,
          "stop what uses it, or choose another --listen"};
}

Check check_user() {
  auto user = find_server_user();
  if (user.ok())
    return {"user", Check::Status::ok, fmt::format("the server becomes uid {}", user->uid), ""};
  return {"user", Check::Status::fail, "the system user atoll is missing",
          "useradd --system --user-group --no-create-home atoll"};
}

Check check_template(const DoctorOptions& options) {
  templates::Catalog catalog(Home::at(options.home).templates());
  auto base = catalog.find("base");
  if (base.ok()) return {"template", Check::Status::ok, "base is ready", ""};
  return {"template", Check::Status::warn, base.error().message,
          "./atoll run or ./atoll up prepares it"};
}

// Without it sandboxes work, but paused ones stay in memory.
Check check_criu(const DoctorOptions& options) {
  const std::string tools = Home::at(options.home).tools();
  const std::string prefix = tools + "/criu";
  const std::string fix = "tools/install-criu " + tools + " (./atoll up does it)";
  auto found = snapshot::find_tools(prefix);
  if (!found.ok())
    return {"criu", Check::Status::warn,
            found.error().message + "; paused sandboxes stay in memory", fix};
  if (::geteuid() != 0)
    return {"criu", Check::Status::warn,
            "CRIU " + found->version + " is there; only root can try it", "sudo atoll doctor"};
  auto tried = [&]() -> Result<snapshot::SelfTest> {
    ATOLL_TRY_ASSIGN(const ScratchDir scratch, ScratchDir::make());
    return snapshot::self_test(prefix, scratch.fd());
  }();
  if (!tried.ok())
    return {"criu", Check::Status::warn,
            fmt::format("CRIU {} cannot dump and restore here: {}; paused sandboxes stay in memory",
                        found->version, tried.error().message),
            fix};
  const auto ms = [](std::chrono::microseconds t) { return double(t.count()) / 1000; };
  return {"criu", Check::Status::ok,
          fmt::format("CRIU {} dumped a tree in {:.0f} ms and restored it in {:.0f} ms",
                      tried->version, ms(tried->dump), ms(tried->restore)),
          ""};
}

Check check_certificate(const DoctorOptions& options) {
  CertFiles files = cert_files(options.home, options.domain);
  const std::string make = "atoll cert " + options.domain;
  if (!options.tls_cert.empty()) files.certificate = options.tls_cert;
  if (!options.tls_key.empty()) files.key = options.tls_key;
  auto text = read_file(files.certificate);
  if (!text.ok())
    return {"certificate", Check::Status::fail, text.error().message,
            make + ", or --tls-cert and --tls-key"};
  if (::access(files.key.c_str(), R_OK) != 0)
    return {"certificate", Check::Status::fail, "its key " + files.key + " cannot be read",
            make + ", or --tls-cert and --tls-key"};
  auto facts = certs::inspect(*text);
  if (!facts.ok()) return {"certificate", Check::Status::fail, facts.error().message, make};
  for (const std::string& name : {"api." + options.domain, "8080-x." + options.domain}) {
    const bool covered =
        std::any_of(facts->names.begin(), facts->names.end(), [&](const std::string& have) {
          return have == name || (have.starts_with("*.") &&
                                  name.substr(name.find('.')) == std::string_view(have).substr(1));
        });
    if (!covered)
      return {"certificate", Check::Status::fail,
              files.certificate + " does not name *." + options.domain, make + " --renew"};
  }
  const auto left = std::chrono::duration_cast<std::chrono::days>(facts->expires -
                                                                  std::chrono::system_clock::now());
  if (left.count() < 14)
    return {"certificate", left.count() < 0 ? Check::Status::fail : Check::Status::warn,
            fmt::format("{} ends in {} days", files.certificate, left.count()), make + " --renew"};
  return {"certificate", Check::Status::ok,
          fmt::format("*.{} is good for {} days", options.domain, left.count()), ""};
}

Check check_resolver() {
  const auto text = read_file("/etc/resolv.conf");
  std::string servers;
  std::istringstream lines(text.ok() ? *text : "");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    std::string value;
    if (words >> key >> value && key == "nameserver") servers += " " + value;
  }
  if (servers.empty())
    return {"resolver", Check::Status::warn, "/etc/resolv.conf names no DNS server",
            "atoll up --resolver ADDRESS:53, or sandboxes resolve no names"};
  return {"resolver", Check::Status::ok, "sandboxes' names are asked of" + servers, ""};
}

std::string_view word(Check::Status status) {
  switch (status) {
    case Check::Status::ok:
      return "ok";
    case Check::Status::warn:
      return "warn";
    case Check::Status::fail:
      return "FAIL";
  }
  return "FAIL";
}

}  // namespace

Result<int> doctor(const DoctorOptions& options) {
  std::vector<Check> checks = jail::check_host(options.home);
  checks.push_back(check_user());
  checks.push_back(check_template(options));
  checks.push_back(check_criu(options));
  checks.push_back(check_resolver());
  checks.push_back(check_port(options));
  if (!options.domain.empty()) checks.push_back(check_certificate(options));
  bool failed = false;
  json::array rows;
  for (const Check& check : checks) {
    failed = failed || check.status == Check::Status::fail;
    if (options.json) {
      json::object o;
      o["check"] = check.name;
      o["status"] = word(check.status);
      o["detail"] = check.detail;
      if (!check.fix.empty()) o["fix"] = check.fix;
      rows.push_back(std::move(o));
      continue;
    }
    fmt::print("{:5} {:18} {}\n", word(check.status), check.name, check.detail);
    if (check.status != Check::Status::ok && !check.fix.empty())
      fmt::print("      FIX: {}\n", check.fix);
  }
  if (options.json) fmt::print("{}\n", json::serialize(rows));
  return failed ? 1 : 0;
}

}  // namespace atl::cli
