// Bodies of requests to the interpreter's HTTP API, and the answers to those that make no sense.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace atl::agent::interpreter {

struct ExecuteRequest {
  std::string context_id;  // empty: none
  std::string language;    // as given; empty: none
  bool has_arguments = false;
  std::string line;  // for the runner
};

struct CreateRequest {
  std::string language;  // as given
  std::string cwd;       // empty: the default
  std::map<std::string, std::string> env;
};

// Exactly one of the two is set: the request, or the JSON body of a 422.
template <class Request>
struct Parsed {
  std::optional<Request> request;
  std::string detail;
};

Parsed<ExecuteRequest> parse_execute(std::string_view body);
// An empty body is one without fields.
Parsed<CreateRequest> parse_create(std::string_view body);

}  // namespace atl::agent::interpreter
