#include "cli/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstdio>

#include "base/json.h"
#include "cli/home.h"
#include "cli/up.h"
#include "net/http_server.h"
#include "runtime/jail/host_checks.h"
#include "templates/catalog.h"

namespace atl::cli {
namespace {

using jail::Check;

Check check_port(const DoctorOptions& options) {
  if (auto running = find_server(options.home); running.ok()) {
    return {"port", Check::Status::ok, "a server of this home runs at " + running->url, ""};
  }
  boost::asio::io_context io;
  net::HttpServer probe(io, {}, [](net::Exchange&) -> net::Task<void> { co_return; });
  auto port = probe.listen_tcp(options.listen, "probe");
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
  checks.push_back(check_port(options));
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
