#include "executor_options.h"

void add_executor_options(CLI::App& verb, atl::cli::ExecutorOptions& options) {
  const char* group = "Executor (RAGFlow's executor_manager API)";
  verb.add_option("--executor-listen", options.listen,
                  "address:port to serve it on, as 127.0.0.1:9385 (default: it is off)")
      ->envname("ATOLL_EXECUTOR_LISTEN")
      ->group(group);
  verb.add_option("--executor-key", options.key,
                  "a key that POST /run must show; better in the environment (default: none)")
      ->envname("ATOLL_EXECUTOR_KEY")
      ->group(group);
  verb.add_option("--executor-timeout", options.time, "time of one run: 10s, 2m, 1m30s")
      ->envname("ATOLL_EXECUTOR_TIMEOUT")
      ->capture_default_str()
      ->group(group);
  verb.add_option("--executor-memory", options.memory, "memory of one run: 256m, 1g")
      ->envname("ATOLL_EXECUTOR_MEMORY")
      ->capture_default_str()
      ->group(group);
  verb.add_option("--executor-pool", options.pool,
                  "runs at once, of each language; more wait in line, then are refused")
      ->envname("ATOLL_EXECUTOR_POOL")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(group);
  verb.add_option("--executor-rate", options.rate,
                  "requests of one client address: 5/s, 100/m, or off")
      ->envname("ATOLL_EXECUTOR_RATE")
      ->capture_default_str()
      ->group(group);
  verb.add_option("--executor-template", options.template_name, "template of the runs")
      ->envname("ATOLL_EXECUTOR_TEMPLATE")
      ->capture_default_str()
      ->group(group);
  verb.add_flag("--executor-static-check", options.static_check,
                "refuse code that imports or calls what is on a list (it isolates nothing)")
      ->envname("ATOLL_EXECUTOR_STATIC_CHECK")
      ->group(group);
  verb.add_flag("--executor-offline", options.offline, "runs have no network")
      ->envname("ATOLL_EXECUTOR_OFFLINE")
      ->group(group);
}
