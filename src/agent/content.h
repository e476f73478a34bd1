// What the headers of a download say and ask: types, names, encodings, ranges, dates
// (wire/sandbox-agent.md §10.4). Pure text in, values out.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace atl::agent {

// By the extension of the name, else by the first bytes (at most 512 are looked at).
std::string content_type(std::string_view name, std::string_view head);
inline constexpr std::size_t kSniffBytes = 512;

// `inline; filename=...`: a bare token, a quoted string, or RFC 8187 for what is not printable
// ASCII.
std::string content_disposition(std::string_view filename);

enum class Encoding { identity, gzip };
struct AcceptedEncoding {
  Encoding encoding = Encoding::identity;
  bool identity_allowed = true;
  // gzip stands in a list with other codings: the habit of an HTTP library, not a wish of the
  // caller.
  bool among_others = false;
};
// Errors: invalid_argument "no acceptable encoding found, supported: [gzip]" (status 406).
Result<AcceptedEncoding> accept_encoding(std::string_view header);
// For Content-Encoding of a request. Errors: invalid_argument "unsupported Content-Encoding: ...".
Result<Encoding> content_encoding(std::string_view header);

// IMF-fixdate: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(std::time_t time);
std::optional<std::time_t> parse_http_date(std::string_view text);

// What the conditional and range headers of a GET ask for, given a file of that size and time.
struct Selection {
  int status = 200;  // 200, 206, 304, 412 or 416
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
Selection select_content(const net::Headers& headers, std::uint64_t size, std::time_t modified);
// True if any header that `select_content` looks at is there.
bool is_range_or_conditional(const net::Headers& headers);

}  // namespace atl::agent
