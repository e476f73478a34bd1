#include "net/origin.h"

#include "net/http.h"

namespace atl::net {
namespace {

// "http://localhost:5173" -> "localhost"; empty if it is no origin.
std::string_view host_of(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return {};
  std::string_view host = origin.substr(scheme + 3);
  if (host.find_first_of("/@?#") != std::string_view::npos) return {};
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(0, end + 1);
  }
  return host.substr(0, host.find(':'));
}

}  // namespace

bool is_allowed_origin(std::string_view origin, std::string_view domain) {
  if (origin.empty()) return true;
  const std::string_view host = host_of(origin);
  if (host.empty()) return false;
  for (const std::string_view own : {"localhost", "127.0.0.1", "[::1]"}) {
    if (iequals(host, own)) return true;
  }
  // The domain and `api.` of it, not sandboxes: what runs there is not ours.
  if (domain.empty()) return false;
  if (iequals(host, domain)) return true;
  return host.size() == domain.size() + 4 && iequals(host.substr(0, 4), "api.") &&
         iequals(host.substr(4), domain);
}

}  // namespace atl::net
