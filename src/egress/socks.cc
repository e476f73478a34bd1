#include "egress/socks.h"

#include <array>

namespace atl::egress {
namespace {

constexpr char kVersion = 5;
constexpr char kNoAuth = 0;
constexpr char kPassword = 2;
constexpr char kPasswordVersion = 1;
constexpr char kConnect = 1;
constexpr char kIpv4 = 1;
constexpr char kName = 3;
constexpr char kIpv6 = 4;

Error garbage() { return make_error(Errc::data_loss, "the egress proxy does not speak SOCKS5"); }

// Never more than asked for: what follows belongs to the connection.
net::Task<Result<std::string>> read_exactly(net::Stream& stream, std::size_t count) {
  std::string out(count, '\0');
  for (std::size_t used = 0; used < count;) {
    auto reading = stream.read_some(std::span<char>(out.data() + used, count - used));
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) co_return make_error(Errc::unavailable, "the egress proxy ended the connection");
    used += n;
  }
  co_return out;
}

net::Task<Result<void>> authenticate(net::Stream& stream, const UpstreamProxy& proxy) {
  std::string message{kPasswordVersion, char(proxy.username.size())};
  message += proxy.username;
  message += char(proxy.password.size());
  message += proxy.password;
  auto writing = stream.write_all(message);
  ATOLL_CO_TRY(co_await std::move(writing));
  auto reading = read_exactly(stream, 2);
  ATOLL_CO_TRY_ASSIGN(const std::string answer, co_await std::move(reading));
  if (answer[1] != 0)
    co_return make_error(Errc::unavailable, "the egress proxy refused the user name or password");
  co_return Result<void>();
}

}  // namespace

net::Task<Result<void>> socks_connect(net::Stream& stream, UpstreamProxy proxy,
                                      SocksTarget target) {
  if (proxy.username.size() > 255 || proxy.password.size() > 255 || target.name.size() > 255)
    co_return make_error(Errc::invalid_argument, "too long for SOCKS5");
  const bool named = !proxy.username.empty();
  std::string greeting{kVersion, char(named ? 2 : 1), kNoAuth};
  if (named) greeting += kPassword;
  auto greeted = stream.write_all(greeting);
  ATOLL_CO_TRY(co_await std::move(greeted));
  auto choosing = read_exactly(stream, 2);
  ATOLL_CO_TRY_ASSIGN(const std::string choice, co_await std::move(choosing));
  if (choice[0] != kVersion) co_return garbage();
  if (choice[1] == kPassword && named) {
    auto authenticating = authenticate(stream, proxy);
    ATOLL_CO_TRY(co_await std::move(authenticating));
  } else if (choice[1] != kNoAuth) {
    co_return make_error(Errc::unavailable, "the egress proxy wants another kind of login");
  }

  std::string request{kVersion, kConnect, 0};
  if (target.name.empty()) {
    request += kIpv4;
    for (int shift = 24; shift >= 0; shift -= 8) request += char(target.address.value >> shift);
  } else {
    request += kName;
    request += char(target.name.size());
    request += target.name;
  }
  request += char(target.port >> 8);
  request += char(target.port & 0xff);
  auto asked = stream.write_all(request);
  ATOLL_CO_TRY(co_await std::move(asked));

  auto reading = read_exactly(stream, 4);
  ATOLL_CO_TRY_ASSIGN(const std::string answer, co_await std::move(reading));
  if (answer[0] != kVersion) co_return garbage();
  if (answer[1] != 0) {
    co_return make_error(Errc::unavailable, "the egress proxy refused the connection (reply " +
                                                std::to_string(int(answer[1])) + ")");
  }
  std::size_t left = 2;  // the port
  if (answer[3] == kIpv4) {
    left += 4;
  } else if (answer[3] == kIpv6) {
    left += 16;
  } else if (answer[3] == kName) {
    auto length = read_exactly(stream, 1);
    ATOLL_CO_TRY_ASSIGN(const std::string count, co_await std::move(length));
    left += static_cast<unsigned char>(count[0]);
  } else {
    co_return garbage();
  }
  auto rest = read_exactly(stream, left);
  ATOLL_CO_TRY(co_await std::move(rest));
  co_return Result<void>();
}

}  // namespace atl::egress
