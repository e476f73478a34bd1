#include "sdk/convert.h"

namespace atl::sdk {

CodeResult public_result(const client::CellResult& result) {
  CodeResult out;
  out.is_main = result.is_main;
  for (const auto& [name, value] : result.forms) {
    if (value.is_null()) continue;
    out.formats[std::string(name)] =
        value.is_string() ? std::string(value.get_string()) : json::serialize(value);
  }
  return out;
}

CodeError public_code_error(const client::CellError& error) {
  return {error.name, error.value, error.traceback};
}

Execution public_execution(client::Execution execution) {
  Execution out;
  out.count = execution.count;
  out.out = std::move(execution.out);
  out.err = std::move(execution.err);
  for (const auto& result : execution.results) out.results.push_back(public_result(result));
  if (execution.error) out.error = public_code_error(*execution.error);
  return out;
}

}  // namespace atl::sdk
