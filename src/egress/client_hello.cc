#include "egress/client_hello.h"

#include "egress/policy.h"

namespace atl::egress {
namespace {

constexpr unsigned kHandshakeRecord = 22;
constexpr unsigned kClientHello = 1;
constexpr std::size_t kMaxRecord = 16 * 1024;
constexpr std::size_t kRandom = 32;
constexpr std::size_t kMaxSessionId = 32;
constexpr unsigned kServerName = 0;
constexpr unsigned kHostName = 0;

Error bad(const char* what) {
  return make_error(Errc::invalid_argument, std::string("ClientHello: ") + what);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }

  Result<unsigned> number(int bytes) {
    ATOLL_TRY_ASSIGN(const std::string_view raw, take(std::size_t(bytes)));
    unsigned value = 0;
    for (const char c : raw) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  Result<std::string_view> take(std::size_t count) {
    if (rest_.size() < count) return bad("a length goes past its end");
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  // A length of so many bytes, and what it counts.
  Result<std::string_view> counted(int bytes) {
    ATOLL_TRY_ASSIGN(const unsigned count, number(bytes));
    return take(count);
  }

 private:
  std::string_view rest_;
};

unsigned byte(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

// The handshake message without its record headers; nullopt: it goes on.
Result<std::optional<std::string>> join_records(std::string_view bytes) {
  std::string message;
  for (;;) {
    if (!message.empty() && byte(message, 0) != kClientHello)
      return bad("another message comes first");
    if (message.size() >= 4) {
      const std::size_t length = byte(message, 1) << 16 | byte(message, 2) << 8 | byte(message, 3);
      if (length > kMaxClientHello) return bad("it is too long");
      if (message.size() >= 4 + length) {
        // Nothing may follow before the server has answered.
        if (message.size() > 4 + length) return bad("bytes follow it");
        return std::optional<std::string>(message.substr(4));
      }
    }
    if (bytes.empty()) return std::optional<std::string>();
    if (byte(bytes, 0) != kHandshakeRecord) return bad("not a handshake record");
    if (bytes.size() >= 2 && byte(bytes, 1) != 3) return bad("not TLS");
    if (bytes.size() < 5) return std::optional<std::string>();
    const std::size_t length = byte(bytes, 3) << 8 | byte(bytes, 4);
    if (length == 0 || length > kMaxRecord) return bad("a record of a size that none has");
    bytes.remove_prefix(5);
    const std::size_t here = std::min(length, bytes.size());
    message += bytes.substr(0, here);
    bytes.remove_prefix(here);
    // Not before the record is whole: more than the message may be in it.
    if (here < length && (message.empty() || byte(message, 0) == kClientHello))
      return std::optional<std::string>();
  }
}

Result<std::string> read_server_name(std::string_view extension) {
  Reader reader(extension);
  ATOLL_TRY_ASSIGN(const std::string_view list, reader.counted(2));
  if (!reader.empty()) return bad("bytes after the server names");
  Reader names(list);
  ATOLL_TRY_ASSIGN(const unsigned kind, names.number(1));
  ATOLL_TRY_ASSIGN(const std::string_view name, names.counted(2));
  if (kind != kHostName || !names.empty()) return bad("more than one server name");
  auto canonical = canonical_domain(name);
  if (!canonical) return bad("the server name is no host name");
  return std::move(*canonical);
}

}  // namespace

Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes) {
  ATOLL_TRY_ASSIGN(const auto message, join_records(bytes));
  if (!message) {
    if (bytes.size() >= kMaxClientHello) return bad("it is too long");
    return std::optional<ClientHello>();
  }
  Reader reader(*message);
  ATOLL_TRY(reader.number(2));  // version
  ATOLL_TRY(reader.take(kRandom));
  ATOLL_TRY_ASSIGN(const std::string_view session, reader.counted(1));
  if (session.size() > kMaxSessionId) return bad("the session id is too long");
  ATOLL_TRY_ASSIGN(const std::string_view suites, reader.counted(2));
  if (suites.size() < 2 || suites.size() % 2 != 0) return bad("no cipher suites");
  ATOLL_TRY_ASSIGN(const std::string_view compressions, reader.counted(1));
  if (compressions.empty()) return bad("no compression methods");
  ClientHello hello;
  if (reader.empty()) return std::optional<ClientHello>(hello);
  ATOLL_TRY_ASSIGN(const std::string_view extensions, reader.counted(2));
  if (!reader.empty()) return bad("bytes after the extensions");
  for (Reader list(extensions); !list.empty();) {
    ATOLL_TRY_ASSIGN(const unsigned kind, list.number(2));
    ATOLL_TRY_ASSIGN(const std::string_view data, list.counted(2));
    if (kind != kServerName) continue;
    if (hello.server_name) return bad("two server name extensions");
    ATOLL_TRY_ASSIGN(hello.server_name, read_server_name(data));
  }
  return std::optional<ClientHello>(std::move(hello));
}

}  // namespace atl::egress
