#include "agent/content.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/encoding.h"

namespace atl::agent {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls fn with each piece between separators, trimmed; stops when fn returns false.
template <class Fn>
void each_piece(std::string_view text, char separator, Fn fn) {
  while (true) {
    const std::size_t end = text.find(separator);
    if (!fn(trim(text.substr(0, end)))) return;
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

struct WeightedCoding {
  std::string name;
  double quality = 1.0;
  std::size_t position = 0;
};

WeightedCoding parse_coding(std::string_view item) {
  WeightedCoding coding;
  bool first = true;
  each_piece(item, ';', [&](std::string_view piece) {
    if (first) {
      coding.name = lower(piece);
      first = false;
    } else if (piece.size() > 2 && (piece[0] == 'q' || piece[0] == 'Q') && piece[1] == '=') {
      const std::string number(piece.substr(2));
      char* end = nullptr;
      const double quality = std::strtod(number.c_str(), &end);
      if (end == number.c_str() + number.size() && quality >= 0) coding.quality = quality;
    }
    return true;
  });
  return coding;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7f && std::strchr("()<>@,;:\\\"/[]?=", c) == nullptr;
  });
}

constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

enum class RangeKind { absent, one, unsatisfiable };
struct ParsedRange {
  RangeKind kind = RangeKind::absent;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// One range is served. Several, other units and malformed values count as no Range header, which
// RFC 9110 §14.2 allows.
ParsedRange parse_range(std::string_view header, std::uint64_t size) {
  static constexpr std::string_view kUnit = "bytes=";
  if (header.size() < kUnit.size() || !net::iequals(header.substr(0, kUnit.size()), kUnit))
    return {};
  const std::string_view spec = trim(header.substr(kUnit.size()));
  if (spec.find(',') != std::string_view::npos) return {};
  const std::size_t dash = spec.find('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view first = trim(spec.substr(0, dash));
  const std::string_view last = trim(spec.substr(dash + 1));
  if (first.empty()) {
    const auto suffix = parse_number(last);
    if (!suffix) return {};
    if (*suffix == 0 || size == 0) return {RangeKind::unsatisfiable, 0, 0};
    const std::uint64_t length = std::min(*suffix, size);
    return {RangeKind::one, size - length, length};
  }
  const auto from = parse_number(first);
  if (!from) return {};
  std::uint64_t to = size == 0 ? 0 : size - 1;
  if (!last.empty()) {
    const auto given = parse_number(last);
    if (!given || *given < *from) return {};
    to = std::min(to, *given);
  }
  if (*from >= size) return {RangeKind::unsatisfiable, 0, 0};
  return {RangeKind::one, *from, to - *from + 1};
}

}  // namespace

std::string content_disposition(std::string_view filename) {
  if (is_token(filename)) return "inline; filename=" + std::string(filename);
  const bool printable = std::all_of(filename.begin(), filename.end(),
                                     [](char c) { return (c >= ' ' && c < 0x7f) || c == '\t'; });
  if (!printable) return "inline; filename*=utf-8''" + percent_encode(filename);
  std::string quoted = "inline; filename=\"";
  for (char c : filename) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

Result<AcceptedEncoding> accept_encoding(std::string_view header) {
  AcceptedEncoding accepted;
  std::vector<WeightedCoding> wanted;
  bool gzip_refused = false;
  std::optional<bool> identity;
  bool rest_refused = false;
  each_piece(header, ',', [&](std::string_view piece) {
    if (piece.empty() || wanted.size() > 64) return wanted.size() <= 64;
    WeightedCoding coding = parse_coding(piece);
    if (coding.name == "identity" && !identity) identity = coding.quality > 0;
    if (coding.name == "*" && coding.quality == 0) rest_refused = true;
    if (coding.name == "gzip" && coding.quality == 0) gzip_refused = true;
    if (coding.name != "gzip" && coding.name != "identity" && coding.name != "*") {
      accepted.among_others = true;
    }
    coding.position = wanted.size();
    if (coding.quality > 0) wanted.push_back(std::move(coding));
    return true;
  });
  accepted.identity_allowed = identity.value_or(!rest_refused);
  std::sort(wanted.begin(), wanted.end(), [](const WeightedCoding& a, const WeightedCoding& b) {
    return a.quality != b.quality ? a.quality > b.quality : a.position < b.position;
  });
  for (const WeightedCoding& coding : wanted) {
    if (coding.name == "gzip" && !gzip_refused) {
      accepted.encoding = Encoding::gzip;
      return accepted;
    }
    if (coding.name == "identity" && accepted.identity_allowed) return accepted;
    if (coding.name == "*") {
      if (accepted.identity_allowed) return accepted;
      if (gzip_refused) continue;
      accepted.encoding = Encoding::gzip;
      return accepted;
    }
  }
  if (accepted.identity_allowed) return accepted;
  return make_error(Errc::invalid_argument, "no acceptable encoding found, supported: [gzip]");
}

Result<Encoding> content_encoding(std::string_view header) {
  const std::string name = parse_coding(header).name;
  if (name.empty() || name == "identity") return Encoding::identity;
  if (name == "gzip") return Encoding::gzip;
  return make_error(Errc::invalid_argument,
                    "unsupported Content-Encoding: " + std::string(header) + ", supported: [gzip]");
}

std::string http_date(std::time_t time) {
  std::tm tm{};
  if (::gmtime_r(&time, &tm) == nullptr || tm.tm_year < -1900 || tm.tm_year > 8099) return {};
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[std::size_t(tm.tm_wday)].data(), tm.tm_mday,
                kMonths[std::size_t(tm.tm_mon)].data(), tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                tm.tm_sec);
  return text;
}

std::optional<std::time_t> parse_http_date(std::string_view text) {
  char day[4] = {};
  char month[4] = {};
  char zone[4] = {};
  std::tm tm{};
  int used = 0;
  const std::string copy(trim(text));
  if (std::sscanf(copy.c_str(), "%3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d %3s%n", day,
                  &tm.tm_mday, month, &tm.tm_year, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, zone,
                  &used) != 8 ||
      std::size_t(used) != copy.size() || std::string_view(zone) != "GMT") {
    return std::nullopt;
  }
  const auto it = std::find(kMonths.begin(), kMonths.end(), std::string_view(month));
  if (it == kMonths.end() || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour < 0 ||
      tm.tm_hour > 23 || tm.tm_min < 0 || tm.tm_min > 59 || tm.tm_sec < 0 || tm.tm_sec > 60 ||
      tm.tm_year < 1) {
    return std::nullopt;
  }
  tm.tm_mon = int(it - kMonths.begin());
  tm.tm_year -= 1900;
  return ::timegm(&tm);
}

bool is_range_or_conditional(const net::Headers& headers) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return !headers.get(name).empty(); });
}

// RFC 9110 §13.2.2, for a resource that has a modification time and no entity tag.
Selection select_content(const net::Headers& headers, std::uint64_t size, std::time_t modified) {
  const Selection whole{200, 0, size};
  if (const std::string_view match = headers.get("If-Match"); !match.empty()) {
    if (trim(match) != "*") return {412, 0, 0};
  } else if (const auto date = parse_http_date(headers.get("If-Unmodified-Since"))) {
    if (modified > *date) return {412, 0, 0};
  }
  if (const std::string_view none = headers.get("If-None-Match"); !none.empty()) {
    if (trim(none) == "*") return {304, 0, 0};
  } else if (const auto date = parse_http_date(headers.get("If-Modified-Since"))) {
    if (modified <= *date) return {304, 0, 0};
  }
  const std::string_view range = headers.get("Range");
  if (range.empty()) return whole;
  if (const std::string_view condition = headers.get("If-Range"); !condition.empty()) {
    const auto date = parse_http_date(condition);
    if (!date || *date != modified) return whole;
  }
  const ParsedRange parsed = parse_range(range, size);
  if (parsed.kind == RangeKind::absent) return whole;
  if (parsed.kind == RangeKind::unsatisfiable) return {416, 0, 0};
  return {206, parsed.offset, parsed.length};
}

}  // namespace atl::agent
