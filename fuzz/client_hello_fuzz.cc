// The first bytes of a connection as a sandbox could send them. A verdict on a beginning must not
// change when more bytes come: a name, once found, stays, and what is malformed stays malformed.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/client_hello.h"
#include "egress/policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl::egress;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = parse_client_hello(bytes);
  if (whole.ok() && *whole && (*whole)->server_name) {
    const auto canonical = canonical_domain(*(*whole)->server_name);
    if (!canonical || *canonical != *(*whole)->server_name) std::abort();
  }
  const auto part = parse_client_hello(bytes.substr(0, bytes.size() * data[0] / 255));
  if (!part.ok() && whole.ok()) std::abort();
  if (part.ok() && *part) {
    if (!whole.ok() || !*whole || (*whole)->server_name != (*part)->server_name) std::abort();
  }
  return 0;
}
