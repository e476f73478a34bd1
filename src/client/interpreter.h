// The code interpreter of a sandbox: one run of code (POST /execute), and contexts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/execution.h"
#include "client/inside.h"
#include "net/http.h"

namespace atl::client {

inline constexpr std::uint16_t kInterpreterPort = 49999;

struct ExecuteRequest {
  std::string code;
  std::string language;    // empty: python. Not together with a context
  std::string context_id;  // empty: the default one of the language
  std::map<std::string, std::string> env_vars;
  net::Headers headers;  // of the request, for whoever is on the way
};

// `client` is connected to the interpreter and is busy until this returns. Closing its stream
// interrupts the run; the call then fails. Errors: what the interpreter refused, in its own words
// (invalid_argument, not_found); unavailable or data_loss: the connection broke.
// `after_piece`, if there is one, is awaited after each piece that came, behind its events: who
// wants to be slow can be.
net::Task<Result<Execution>> execute(net::HttpClient& client, ExecuteRequest request,
                                     ExecutionEvents events,
                                     std::function<net::Task<void>()> after_piece = {});

// A context: a kernel with variables of its own.
struct Context {
  std::string id;
  std::string language;
  std::string directory;
};
// Each over a connection of its own. Errors as above.
net::Task<Result<Context>> create_context(Inside inside, std::string language,
                                          std::string directory);
net::Task<Result<std::vector<Context>>> list_contexts(Inside inside);
// Its variables are gone.
net::Task<Result<void>> restart_context(Inside inside, std::string id);
net::Task<Result<void>> remove_context(Inside inside, std::string id);

}  // namespace atl::client
