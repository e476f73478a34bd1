// The answer of a code interpreter as a sandbox could send it. Where the pieces are cut must not
// change what is read; neither may a terminal's view of an error fail.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/display.h"
#include "client/execution.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  client::ExecutionReader at_once, in_pieces;
  const bool taken = at_once.feed(bytes).ok();
  const std::size_t cut = bytes.size() * data[0] / 255;
  const bool taken_too =
      in_pieces.feed(bytes.substr(0, cut)).ok() && in_pieces.feed(bytes.substr(cut)).ok();
  if (taken != taken_too) std::abort();
  if (!taken) return 0;
  const auto whole = std::move(at_once).finish();
  const auto joined = std::move(in_pieces).finish();
  if (whole.ok() != joined.ok()) std::abort();
  if (!whole.ok()) return 0;
  if (json::serialize(whole->to_json()) != json::serialize(joined->to_json())) std::abort();
  const int status = cli::exit_status(*whole);
  if (status < 0 || status > 255 || (!whole->error && status != 0)) std::abort();
  if (whole->error) (void)cli::readable_traceback(*whole->error);
  return 0;
}
