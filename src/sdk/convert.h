// The library's own values from the inner ones.
#pragma once

#include <atoll/code.h>

#include "client/execution.h"

namespace atl::sdk {

CodeResult public_result(const client::CellResult& result);
CodeError public_code_error(const client::CellError& error);
Execution public_execution(client::Execution execution);

}  // namespace atl::sdk
