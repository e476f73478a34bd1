// One run of code: POST /execute of a code interpreter.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "client/execution.h"
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
net::Task<Result<Execution>> execute(net::HttpClient& client, ExecuteRequest request,
                                     ExecutionEvents events);

}  // namespace atl::client
