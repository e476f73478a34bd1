// The last bytes of a body and its end in one write, for streams whose reader may act on those
// bytes at once: what belongs together arrives together.
#pragma once

#include "net/http.h"

namespace atl::net {

// A ResponseWriter that has a way of its own to do it.
class LastWriter {
 public:
  virtual ~LastWriter() = default;
  virtual Task<Result<void>> finish_with(std::string_view last) = 0;
};

// `write` and `finish`, in one system call where the writer can.
inline Task<Result<void>> finish_with(ResponseWriter& writer, std::string_view last) {
  if (auto* able = dynamic_cast<LastWriter*>(&writer)) co_return co_await able->finish_with(last);
  ATOLL_CO_TRY(co_await writer.write(last));
  co_return co_await writer.finish();
}

}  // namespace atl::net
