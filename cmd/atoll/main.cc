// atoll: the server and the command line in one binary. This file only reads the arguments and
// calls src/cli.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string_view>

#include "base/log.h"
#include "cli/audit.h"
#include "cli/cert.h"
#include "cli/doctor.h"
#include "cli/gc.h"
#include "cli/home.h"
#include "cli/key.h"
#include "cli/repl.h"
#include "cli/run.h"
#include "cli/supervisor.h"
#include "cli/up.h"
#include "exec_verb.h"
#include "executor_options.h"
#include "finish.h"
#include "mcp_verb.h"
#include "provider_verbs.h"
#include "sandbox_verbs.h"
#include "session_verbs.h"
#include "workspace_verbs.h"

namespace {

using namespace atl::cli;

CLI::App* add_home(CLI::App* command, std::string& home) {
  command->add_option("--home", home, "data directory (default: $ATOLL_HOME or /var/lib/atoll)");
  return command;
}

// up, serve, down
void add_server_verbs(CLI::App& app, std::string& home, ServeOptions& options, int& exit_code,
                      int argc, char** argv) {
  for (const char* name : {"up", "serve"}) {
    const bool supervised = std::string_view(name) == "up";
    CLI::App* verb = app.add_subcommand(
        name, supervised ? "serve the API and sandbox traffic on one port; starts the server again "
                           "when it dies"
                         : "the server alone, for a service manager that starts it again");
    add_home(verb, home);
    verb->add_option("--listen", options.listen, "address:port (port 0: a free one)")
        ->capture_default_str();
    if (supervised) {
      verb->add_flag("-d,--detach", options.detach,
                     "return when the server is healthy; `atoll down` stops it");
    }
    verb->add_option("--domain", options.domain,
                     "serve https://api.DOMAIN and https://*.DOMAIN on one port");
    verb->add_option("--tls-cert", options.tls_cert,
                     "PEM file of the certificate (default: what `atoll cert` made)");
    verb->add_option("--tls-key", options.tls_key, "PEM file of its key");
    verb->add_option("--tls-listen", options.tls_listen,
                     "address:port of HTTPS (0.0.0.0:443 for other machines)")
        ->capture_default_str();
    verb->add_option("--metrics-listen", options.metrics_listen,
                     "address:port of Prometheus' /metrics, or 'off' (default: 127.0.0.1:9464)");
    verb->add_option("--resolver", options.resolvers,
                     "address:port of a DNS server for sandboxes (default: this machine's)")
        ->allow_extra_args(false);
    verb->add_option("--max-sandboxes", options.max_sandboxes, "how many may exist at once")
        ->capture_default_str();
    verb->add_option("--max-per-team", options.max_per_team, "of one team; 0: no limit of its own")
        ->capture_default_str();
    verb->add_option("--max-per-key", options.max_per_key, "of one API key; 0: no limit of its own")
        ->capture_default_str();
    verb->add_option("--max-creates", options.max_creates,
                     "creates at the same time; more wait in line")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    verb->add_option("--max-connections-per-sandbox", options.max_connections_per_sandbox,
                     "through the proxy at once; 0: no limit")
        ->capture_default_str();
    verb->add_option("--pool-ready", options.pool_ready,
                     "sandboxes with a warm kernel kept per template in use, more after bursts")
        ->envname("ATOLL_POOL_READY")
        ->capture_default_str()
        ->check(CLI::Range(0, 256));
    verb->add_option("--pool-skeletons", options.pool_skeletons,
                     "sandboxes without a kernel kept per template in use, more after bursts")
        ->envname("ATOLL_POOL_SKELETONS")
        ->capture_default_str()
        ->check(CLI::Range(0, 256));
    verb->add_flag("--no-zygotes", options.no_zygotes,
                   "start every Python kernel cold; saves the memory of the loaded libraries")
        ->envname("ATOLL_NO_ZYGOTES");
    verb->add_option("--keep-frozen", options.keep_frozen,
                     "seconds in which a paused sandbox stays in RAM before it goes to disk")
        ->envname("ATOLL_KEEP_FROZEN")
        ->capture_default_str()
        ->check(CLI::Range(0, 7 * 24 * 3600));
    verb->add_option("--max-frozen-memory", options.max_frozen_memory,
                     "what such sandboxes may hold together, as 512M or 8G; 0: no limit")
        ->envname("ATOLL_MAX_FROZEN_MEMORY")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false));
    add_executor_options(*verb, options.executor);
    verb->add_option("--blobs", options.blobs,
                     "where workspaces are: dir:/PATH, or s3://BUCKET/PREFIX?endpoint=URL&region=R "
                     "with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (default: in the home)")
        ->envname("ATOLL_BLOBS");
    verb->add_option("--store", options.store,
                     "redis://[[user]:password@]host[:port][/database]: sessions are shared with "
                     "the other servers that use it")
        ->envname("ATOLL_STORE");
    verb->add_option("--advertise", options.advertise,
                     "http://IP:PORT where those servers reach this one (default: --listen)");
    auto* standby =
        verb->add_flag("--standby", options.standby,
                       "if another process serves this home, pass connections on to it, and take "
                       "its place when it is gone");
    if (!supervised) standby->group("");
    verb->add_option("--log-level", options.log_level, "debug, info, warn or error")
        ->capture_default_str();
    verb->add_flag("--json-logs", options.json_logs, "log lines as JSON objects");
    if (!supervised) {
      verb->add_option("--supervised", options.supervised)->group("");
      verb->add_flag("--with-stdin", options.with_stdin,
                     "end, and kill the sandboxes, when stdin ends: for programs that embed it");
    }
    verb->callback([&, supervised, argc, argv] {
      options.home = default_home(home);
      if (!supervised) {
        exit_code = finish(serve(options));
      } else {
        exit_code = finish(options.detach ? up_detached(options, argc, argv)
                                          : supervise(options, argc, argv));
      }
    });
  }
  CLI::App* stop = app.add_subcommand("down", "stop the server and its sandboxes");
  add_home(stop, home);
  auto* keep =
      stop->add_flag("--keep")->description("leave the sandboxes; the next `atoll up` finds them");
  stop->callback([&, keep] {
    exit_code =
        finish(down(default_home(home), keep->count() > 0 ? Sandboxes::keep : Sandboxes::kill));
  });
}

}  // namespace

int finish(atl::Result<int> result) {
  if (result.ok()) return *result;
  std::fprintf(stderr, "atoll: %s\n", result.error().message.c_str());
  return 1;
}

int main(int argc, char** argv) {
  CLI::App app("Atoll: sandboxes for AI agents on one Linux machine", "atoll");
  app.require_subcommand(1);
  std::string home;
  int exit_code = 0;
  const auto with_home = [&home](CLI::App* command) { return add_home(command, home); };

  ServeOptions serve_options;
  serve_options.version = ATOLL_VERSION;
  add_server_verbs(app, home, serve_options, exit_code, argc, argv);

  RunOptions run_options;
  CLI::App* run =
      with_home(app.add_subcommand("run", "run code in a fresh sandbox; no server needed"));
  run->add_option("code", run_options.code,
                  "the code, or the name of a file; '-' or nothing reads stdin");
  run->add_option("-f,--file", run_options.file, "a file with the code");
  run->add_option("-l,--language", run_options.language,
                  language_names() + " (default: by the file's name, else python)");
  run->add_option("-e,--env", run_options.envs, "KEY=VALUE for the code (repeatable)")
      ->allow_extra_args(false);
  run->add_option("--template", run_options.template_name,
                  "template (default: code-interpreter-slim, or -v1 for R and Java)");
  run->add_option("-o,--output", run_options.output, "folder for images and files of the run")
      ->capture_default_str();
  run->add_flag("--json", run_options.json, "print the whole execution as JSON");
  run->add_flag("--keep", run_options.keep,
                "run it in a sandbox of the running server and leave that there");
  run->add_option("--timeout", run_options.timeout_seconds,
                  "seconds after which the code is stopped")
      ->capture_default_str();
  run->add_flag("--timings", run_options.timings, "print how long each step of the launch took");
  run->callback([&] {
    run_options.home = home;
    exit_code = finish(run_code(run_options));
  });

  RunOptions repl_options;
  repl_options.timeout_seconds = 4 * 3600;
  CLI::App* repl_verb =
      with_home(app.add_subcommand("repl", "run code cell after cell in one sandbox"));
  repl_verb->add_option("-l,--language", repl_options.language, language_names());
  repl_verb->add_option("-e,--env", repl_options.envs, "KEY=VALUE for the code (repeatable)")
      ->allow_extra_args(false);
  repl_verb->add_option("--template", repl_options.template_name,
                        "template (default: code-interpreter-slim, or -v1 for R and Java)");
  repl_verb->add_option("-o,--output", repl_options.output, "folder for images and files")
      ->capture_default_str();
  repl_verb
      ->add_option("--timeout", repl_options.timeout_seconds,
                   "seconds after which the sandbox ends")
      ->capture_default_str();
  repl_verb->callback([&] {
    repl_options.home = home;
    exit_code = finish(repl(repl_options));
  });

  add_exec_verb(app, home, exit_code);

  AuditOptions audit_options;
  CLI::App* audit = with_home(app.add_subcommand("audit", "who did what, newest first"));
  audit->add_option("subject", audit_options.subject, "only of this sandbox or key");
  audit->add_option("--since", audit_options.since, "only of the last 90s, 15m, 2h, 7d");
  audit->add_option("--limit", audit_options.limit, "at most so many rows")->capture_default_str();
  audit->add_flag("--json", audit_options.json, "print JSON");
  audit->callback([&] {
    audit_options.home = default_home(home);
    exit_code = finish(audit_command(audit_options));
  });

  KeyOptions key_options;
  CLI::App* key = with_home(app.add_subcommand("key", "API keys: show, create, ls, rm"));
  key->add_option("verb", key_options.verb, "show (default), create NAME, ls, rm ID");
  key->add_option("argument", key_options.argument, "a name or an id");
  key->add_option("--team", key_options.team, "name or id of the team; create makes a new one");
  key->add_flag("--json", key_options.json, "print JSON");
  key->callback([&] {
    key_options.home = default_home(home);
    exit_code = finish(key_command(key_options));
  });

  // Behind "--" is a command for the sandbox, in which nothing is ours.
  std::vector<std::string> command;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    command.assign(argv + i + 1, argv + argc);
    argc = i;
  }
  add_sandbox_verbs(app, home, exit_code, std::move(command));
  add_session_verbs(app, home, exit_code);
  add_mcp_verb(app, home, exit_code);
  add_workspace_verbs(app, home, exit_code);
  add_provider_verbs(app, home, exit_code);

  CertOptions cert_options;
  CLI::App* cert = with_home(
      app.add_subcommand("cert", "a development CA and a wildcard certificate for a domain"));
  cert->add_option("domain", cert_options.domain, "the domain, e.g. atoll.test")->required();
  cert->add_flag("--renew", cert_options.renew, "make a new certificate even if one is good");
  cert->add_flag("--json", cert_options.json, "print JSON");
  cert->callback([&] {
    cert_options.home = default_home(home);
    exit_code = finish(cert_command(cert_options));
  });

  GcOptions gc_options;
  CLI::App* gc = with_home(app.add_subcommand("gc", "remove what belongs to nobody any more"));
  gc->add_option("--paused-older-than", gc_options.paused_older_than,
                 "kill paused sandboxes that started so long ago (7d)");
  gc->add_flag("--json", gc_options.json, "print JSON");
  gc->callback([&] {
    gc_options.home = default_home(home);
    exit_code = finish(atl::cli::gc(gc_options));
  });

  DoctorOptions doctor_options;
  CLI::App* doctor =
      with_home(app.add_subcommand("doctor", "can this machine run sandboxes? one line per check"));
  doctor->add_option("--listen", doctor_options.listen, "the address that the server would use")
      ->capture_default_str();
  doctor->add_option("--domain", doctor_options.domain, "check the certificate of this domain");
  doctor->add_option("--tls-cert", doctor_options.tls_cert, "PEM file of the certificate");
  doctor->add_option("--tls-key", doctor_options.tls_key, "PEM file of its key");
  doctor->add_flag("--json", doctor_options.json, "print JSON");
  doctor->callback([&] {
    doctor_options.home = default_home(home);
    exit_code = finish(atl::cli::doctor(doctor_options));
  });

  app.set_version_flag("--version", "atoll " ATOLL_VERSION);
  app.footer("Errors say what to do next; `atoll doctor` checks this machine.");
  if (argc < 2 || std::string_view(argv[1]) == "help") {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
