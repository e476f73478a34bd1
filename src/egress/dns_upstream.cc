#include "egress/dns_upstream.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>
#include <fstream>

#include "base/ids.h"
#include "egress/dial.h"
#include "net/stream.h"

namespace atl::egress::dns {
namespace {

namespace asio = net::asio;
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kMaxServers = 3;
constexpr int kDownAfter = 3;
// Datagrams of a forger cost us time: after so many wrong ones the try is over.
constexpr int kMaxStrays = 32;

std::uint16_t random_id() {
  const std::string bytes = random_bytes(2);
  return std::uint16_t(static_cast<unsigned char>(bytes[0]) << 8 |
                       static_cast<unsigned char>(bytes[1]));
}

bool answers(const Answer& answer, std::uint16_t id, const Question& question) {
  return answer.id == id && answer.question.name == question.name &&
         answer.question.type == question.type && answer.question.klass == question.klass;
}

net::Task<Result<void>> read_exactly(net::Stream& stream, std::span<char> into) {
  while (!into.empty()) {
    auto reading = stream.read_some(into);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) co_return make_error(Errc::unavailable, "the DNS server ended the connection");
    into = into.subspan(n);
  }
  co_return Result<void>();
}

}  // namespace

Result<Server> parse_server(std::string_view text) {
  std::string host(text);
  unsigned port = 53;
  const bool bracketed = host.starts_with('[');
  const std::size_t close = host.find(']');
  const std::size_t colon = bracketed ? (close == std::string::npos ? close : host.find(':', close))
                            : host.find(':') == host.rfind(':') ? host.find(':')
                                                                : std::string::npos;
  if (colon != std::string::npos) {
    const char* end = host.data() + host.size();
    const auto [stop, error] = std::from_chars(host.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end || port == 0 || port > 65535)
      return make_error(Errc::invalid_argument, "not a DNS server's ip:port: " + host);
    host.resize(colon);
  }
  if (bracketed && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (ec)
    return make_error(Errc::invalid_argument, "not a DNS server's ip:port: " + std::string(text));
  return Server(address, std::uint16_t(port));
}

std::vector<Server> servers_from_resolv_conf(const std::string& path) {
  std::vector<Server> out;
  std::ifstream file(path);
  std::string line;
  while (out.size() < kMaxServers && std::getline(file, line)) {
    constexpr std::string_view kWord = "nameserver";
    std::string_view rest = line;
    if (!rest.starts_with(kWord)) continue;
    rest.remove_prefix(kWord.size());
    const std::size_t from = rest.find_first_not_of(" \t");
    if (from == 0 || from == std::string_view::npos) continue;
    rest.remove_prefix(from);
    rest = rest.substr(0, rest.find_first_of(" \t\r#;"));
    boost::system::error_code ec;
    const auto address = asio::ip::make_address(std::string(rest), ec);
    if (!ec) out.emplace_back(address, 53);
  }
  return out;
}

Upstream::Upstream(std::vector<Server> servers, UpstreamOptions options)
    : servers_(std::move(servers)), options_(options) {}

net::Task<Result<Looked>> Upstream::lookup(Question question, bool dnssec_ok,
                                           bool checking_disabled) {
  if (servers_.empty()) co_return make_error(Errc::unavailable, "no DNS server is configured");
  const bool down = failures_ >= kDownAfter;
  const auto limit = down ? options_.try_time_when_down : options_.try_time;
  const int tries = down ? int(servers_.size()) : std::max(options_.tries, int(servers_.size()));
  const std::size_t first = preferred_;
  Result<Looked> last = make_error(Errc::unavailable, "no DNS server answered");
  for (int i = 0; i < tries; ++i) {
    const std::size_t index = (first + std::size_t(i)) % servers_.size();
    auto asking = ask_udp(servers_[index], question, dnssec_ok, checking_disabled, limit);
    auto looked = co_await std::move(asking);
    if (looked.ok() && looked->answer.truncated) {
      auto again = ask_tcp(servers_[index], question, dnssec_ok, checking_disabled, limit);
      looked = co_await std::move(again);
    }
    if (!looked.ok()) continue;
    failures_ = 0;
    // Another server may know more than one that fails or refuses.
    const bool useful =
        looked->answer.rcode == Rcode::no_error || looked->answer.rcode == Rcode::name_error;
    last = std::move(looked);
    if (useful) {
      preferred_ = index;
      co_return last;
    }
    if (i + 1 >= int(servers_.size())) break;
  }
  if (!last.ok()) ++failures_;
  co_return last;
}

net::Task<Result<Looked>> Upstream::ask_udp(Server server, Question question, bool dnssec_ok,
                                            bool checking_disabled,
                                            std::chrono::milliseconds limit) {
  auto executor = co_await asio::this_coro::executor;
  asio::ip::udp::socket socket(executor);
  boost::system::error_code ec;
  socket.open(server.protocol(), ec);
  if (!ec) socket.connect(server, ec);
  if (!ec) socket.non_blocking(true, ec);
  if (ec) co_return net::to_error(ec, "DNS server");
  const std::uint16_t id = random_id();
  const std::string query = encode_query(question, id, dnssec_ok, checking_disabled);
  if (::send(socket.native_handle(), query.data(), query.size(), MSG_NOSIGNAL) < 0)
    co_return errno_error("DNS server");

  asio::steady_timer timer(executor, limit);
  bool late = false;
  // Both live in this frame, and the timer's handler runs on this strand: it has been cancelled, or
  // has run, before they go.
  auto done = std::make_shared<bool>(false);
  timer.async_wait([&socket, &late, done](const boost::system::error_code& timer_ec) {
    if (timer_ec || *done) return;
    late = true;
    boost::system::error_code ignored;
    socket.cancel(ignored);
  });
  std::string message(kMaxMessage, '\0');
  Result<Looked> out = make_error(Errc::deadline_exceeded, "the DNS server did not answer");
  for (int strays = 0; strays < kMaxStrays && !late;) {
    const ssize_t n = ::recv(socket.native_handle(), message.data(), message.size(), MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      out = errno_error("DNS server");  // ECONNREFUSED: nobody is there
      break;
    }
    if (n < 0) {
      auto [wait_ec] = co_await socket.async_wait(asio::ip::udp::socket::wait_read, kUse);
      if (wait_ec && !late) {
        out = net::to_error(wait_ec, "DNS server");
        break;
      }
      continue;
    }
    ++strays;
    const std::string_view got(message.data(), std::min(std::size_t(n), message.size()));
    auto answer = parse_answer(got);
    if (!answer.ok() || !answers(*answer, id, question)) continue;
    out = Looked{std::string(got), std::move(*answer)};
    break;
  }
  *done = true;
  co_return out;
}

net::Task<Result<Looked>> Upstream::ask_tcp(Server server, Question question, bool dnssec_ok,
                                            bool checking_disabled,
                                            std::chrono::milliseconds limit) {
  auto dialling = dial(asio::ip::tcp::endpoint(server.address(), server.port()), limit);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
  stream->set_read_timeout(limit);
  stream->set_write_timeout(limit);
  const std::uint16_t id = random_id();
  const std::string query = encode_query(question, id, dnssec_ok, checking_disabled);
  std::string framed{char(query.size() >> 8), char(query.size() & 0xff)};
  framed += query;
  auto writing = stream->write_all(framed);
  ATOLL_CO_TRY(co_await std::move(writing));
  std::array<char, 2> size{};
  auto reading = read_exactly(*stream, size);
  ATOLL_CO_TRY(co_await std::move(reading));
  std::string message(
      std::size_t(static_cast<unsigned char>(size[0])) << 8 | static_cast<unsigned char>(size[1]),
      '\0');
  auto rest = read_exactly(*stream, message);
  ATOLL_CO_TRY(co_await std::move(rest));
  ATOLL_CO_TRY_ASSIGN(Answer answer, parse_answer(message));
  if (!answers(answer, id, question) || answer.truncated)
    co_return make_error(Errc::unavailable, "the DNS server answered something else");
  co_return Looked{std::move(message), std::move(answer)};
}

}  // namespace atl::egress::dns
