// TLS over a Stream.
//
// OpenSSL never touches a socket: a BIO of our own takes ciphertext from `in_` and appends it to
// `out_`, and never blocks. Reads fill `in_` from the plain stream; whoever has put something into
// `out_` flushes it. The plain stream has one reader and one writer, but the reader of the TLS
// stream may have to write, too (key updates, alerts): the flush is a lock, and what is appended
// during a flush goes out with it.
#include "net/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>

#include "net/tls_context.h"

namespace atl::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kRecord = 16 * 1024;
constexpr std::size_t kFirstRead = 8 * 1024;  // enough for a handshake; grows under load
constexpr std::size_t kLargeRead = 128 * 1024;
constexpr std::size_t kBatch = 128 * 1024;  // plaintext that is encrypted before it is sent

// Ciphertext that came in and was not decrypted yet.
class Inbox {
 public:
  std::span<char> space() {
    if (data_.empty()) data_.resize(kFirstRead);
    if (begin_ == end_) begin_ = end_ = 0;
    if (end_ == data_.size()) {
      if (begin_ > 0) {
        std::memmove(data_.data(), data_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
      } else {
        data_.resize(data_.size() * 2);  // a record is at most 16 KiB and a little
      }
    }
    return {data_.data() + end_, data_.size() - end_};
  }
  void put(std::size_t n) {
    const bool full = begin_ == 0 && end_ + n == data_.size();
    end_ += n;
    grow_ = full && data_.size() < kLargeRead;
  }
  void put(std::string_view bytes) {
    data_.assign(bytes.begin(), bytes.end());
    data_.resize(std::max(bytes.size(), kFirstRead));
    begin_ = 0;
    end_ = bytes.size();
  }
  std::size_t take(char* into, std::size_t n) {
    n = std::min(n, end_ - begin_);
    std::memcpy(into, data_.data() + begin_, n);
    begin_ += n;
    if (begin_ == end_) {
      begin_ = end_ = 0;
      if (grow_) data_.resize(data_.size() * 2);
      grow_ = false;
    }
    return n;
  }
  bool empty() const { return begin_ == end_; }

 private:
  std::vector<char> data_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool grow_ = false;
};

struct Pipes {
  Inbox in;
  std::string out;
  bool ended = false;  // the plain stream ended
};

int bio_read(BIO* bio, char* into, int size) {
  auto* pipes = static_cast<Pipes*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  if (pipes->in.empty()) {
    if (pipes->ended) return 0;
    BIO_set_retry_read(bio);
    return -1;
  }
  return int(pipes->in.take(into, std::size_t(size)));
}

int bio_write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  if (size > 0) static_cast<Pipes*>(BIO_get_data(bio))->out.append(bytes, std::size_t(size));
  return size;
}

long bio_ctrl(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF: {
      const auto* pipes = static_cast<Pipes*>(BIO_get_data(bio));
      return pipes->ended && pipes->in.empty() ? 1 : 0;
    }
    default:
      return 0;
  }
}

const BIO_METHOD* bio_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
    ATOLL_CHECK(made != nullptr);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_ctrl(made, bio_ctrl);
    return made;
  }();
  return method;
}

class TlsOverStream final : public Stream {
 public:
  TlsOverStream(std::unique_ptr<Stream> plain, SslPtr ssl, std::string_view first)
      : plain_(std::move(plain)), ssl_(std::move(ssl)), flushed_(plain_->executor()) {
    BIO* bio = BIO_new(bio_method());
    ATOLL_CHECK(bio != nullptr);
    BIO_set_data(bio, &pipes_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    if (!first.empty()) pipes_.in.put(first);
  }
  ~TlsOverStream() override { close(); }

  SSL* ssl() { return ssl_.get(); }

  Task<Result<void>> handshake(milliseconds limit) {
    const auto until = Clock::now() + limit;
    for (;;) {
      ERR_clear_error();
      const int done = SSL_do_handshake(ssl_.get());
      const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), done);
      std::optional<Error> failure;
      if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) failure = handshake_error();
      write_timeout_ = remaining(until);
      auto flushing = flush();  // the alert that says why, too
      auto sent = co_await std::move(flushing);
      if (failure) co_return std::move(*failure);
      ATOLL_CO_TRY(std::move(sent));
      if (done == 1) break;
      auto filling = fill(until);
      ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(filling));
      if (n == 0)
        co_return make_error(Errc::unavailable, "the connection ended in the TLS handshake");
    }
    write_timeout_ = std::nullopt;
    co_return Result<void>();
  }

  Task<Result<std::size_t>> read_some(std::span<char> into) override {
    if (into.empty()) co_return std::size_t(0);
    std::optional<Clock::time_point> until;
    if (read_timeout_) until = Clock::now() + *read_timeout_;
    for (;;) {
      std::size_t got = 0;
      int error = SSL_ERROR_NONE;
      while (got < into.size()) {
        ERR_clear_error();
        std::size_t n = 0;
        if (closed_) co_return make_error(Errc::canceled, "read: the stream is closed");
        const int done = SSL_read_ex(ssl_.get(), into.data() + got, into.size() - got, &n);
        if (done != 1) {
          error = SSL_get_error(ssl_.get(), done);
          break;
        }
        got += n;
      }
      std::optional<Error> failure;
      if (got == 0 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_ZERO_RETURN)
        failure = read_error();
      if (!pipes_.out.empty() && !flushing_) {
        auto flushing = flush();
        auto sent = co_await std::move(flushing);
        if (!sent.ok() && got == 0 && !failure) failure = std::move(sent).error();
      }
      if (failure) co_return std::move(*failure);
      if (got > 0) co_return got;
      if (error == SSL_ERROR_ZERO_RETURN) co_return std::size_t(0);
      auto filling = fill(until);
      ATOLL_CO_TRY(co_await std::move(filling));
    }
  }

  Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    std::size_t total = 0;
    for (std::string_view piece : pieces) total += piece.size();
    if (pieces.size() > 1 && total <= kRecord) {
      // Head and body in one record.
      std::string joined;
      joined.reserve(total);
      for (std::string_view piece : pieces) joined += piece;
      auto writing = write_one(joined);
      co_return co_await std::move(writing);
    }
    for (std::string_view piece : pieces) {
      auto writing = write_one(piece);
      ATOLL_CO_TRY(co_await std::move(writing));
    }
    co_return Result<void>();
  }

  Task<void> wait_peer_closed() override {
    if (closed_ || (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0) co_return;
    auto waiting = plain_->wait_peer_closed();
    co_await std::move(waiting);
  }

  void set_read_timeout(std::optional<milliseconds> timeout) override { read_timeout_ = timeout; }
  void set_write_timeout(std::optional<milliseconds> timeout) override { write_timeout_ = timeout; }

  void shutdown_write() override {
    if (closed_ || shut_) return;
    shut_ = true;
    say_goodbye();
    if (!flushing_) plain_->shutdown_write();
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    if (!shut_) say_goodbye();
    plain_->close();
    flushed_.cancel();
  }

  void reset() override {
    if (closed_) return;
    closed_ = true;
    plain_->reset();
    flushed_.cancel();
  }

  asio::any_io_executor executor() override { return plain_->executor(); }
  int native_handle() override { return -1; }
  int release() override { return -1; }

 private:
  static milliseconds remaining(Clock::time_point until) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    return std::max(left, milliseconds(1));
  }

  // Reads ciphertext once; 0: the plain stream ended. The limit is for the whole read of plaintext:
  // a record that trickles in byte by byte is silence.
  Task<Result<std::size_t>> fill(std::optional<Clock::time_point> until) {
    if (until && Clock::now() >= *until)
      co_return make_error(Errc::deadline_exceeded, "read: the peer was silent for too long");
    plain_->set_read_timeout(until ? std::optional(remaining(*until)) : std::nullopt);
    auto reading = plain_->read_some(pipes_.in.space());
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) pipes_.ended = true;
    pipes_.in.put(n);
    co_return n;
  }

  // Sends all of `out`. Whoever comes during a flush waits for its end and looks again.
  Task<Result<void>> flush() {
    while (flushing_) {
      flushed_.expires_at(Clock::time_point::max());
      co_await flushed_.async_wait(kUse);
    }
    if (broken_) co_return make_error(Errc::unavailable, "write: the connection is broken");
    if (pipes_.out.empty()) co_return Result<void>();
    // A write that ends half-way, by cancellation, too, leaves a torn record behind.
    struct Guard {
      TlsOverStream& self;
      bool whole = false;
      ~Guard() {
        self.flushing_ = false;
        self.broken_ = !whole;
        self.flushed_.cancel();
      }
    } guard{*this};
    flushing_ = true;
    while (!pipes_.out.empty()) {
      sending_.clear();
      std::swap(sending_, pipes_.out);
      plain_->set_write_timeout(write_timeout_);
      auto writing = plain_->write_all(sending_);
      ATOLL_CO_TRY(co_await std::move(writing));
    }
    guard.whole = true;
    if (sending_.capacity() > 4 * kBatch) sending_ = {};
    if (shut_ && !closed_) plain_->shutdown_write();
    co_return Result<void>();
  }

  Task<Result<void>> write_one(std::string_view bytes) {
    while (!bytes.empty()) {
      if (closed_ || shut_ || broken_)
        co_return make_error(Errc::unavailable, "write: the stream is closed");
      std::size_t batch = 0;
      pipes_.out.reserve(std::min(bytes.size(), kBatch) + 1024);
      while (!bytes.empty() && batch < kBatch) {
        ERR_clear_error();
        std::size_t n = 0;
        const std::size_t size = std::min(bytes.size(), kRecord);
        if (SSL_write_ex(ssl_.get(), bytes.data(), size, &n) != 1) {
          broken_ = true;
          co_return openssl_error("TLS write");
        }
        bytes.remove_prefix(n);
        batch += n;
      }
      auto flushing = flush();
      ATOLL_CO_TRY(co_await std::move(flushing));
    }
    co_return Result<void>();
  }

  // close_notify, as far as it goes without waiting: a peer that does not read does not care.
  void say_goodbye() {
    ERR_clear_error();
    if (broken_ || SSL_in_init(ssl_.get()) != 0) return;
    if ((SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) == 0) (void)SSL_shutdown(ssl_.get());
    ERR_clear_error();
    if (flushing_ || pipes_.out.empty()) return;
    const int fd = plain_->native_handle();
    if (fd >= 0) {
      const ssize_t n =
          ::send(fd, pipes_.out.data(), pipes_.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n != ssize_t(pipes_.out.size())) broken_ = true;
    }
    pipes_.out.clear();
  }

  Error read_error() {
    const unsigned long code = ERR_peek_error();
    if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING || code == 0) {
      ERR_clear_error();
      return make_error(Errc::unavailable, "read: the connection ended without a TLS goodbye");
    }
    Error error = openssl_error("TLS read");
    error.code = Errc::unavailable;
    return error;
  }

  Error handshake_error() {
    const long verdict = SSL_get_verify_result(ssl_.get());
    if (!SSL_is_server(ssl_.get()) && verdict != X509_V_OK) {
      ERR_clear_error();
      return make_error(Errc::unauthenticated, std::string("the server's certificate: ") +
                                                   X509_verify_cert_error_string(verdict));
    }
    Error error = openssl_error("TLS handshake");
    error.code = Errc::unavailable;
    return error;
  }

  std::unique_ptr<Stream> plain_;
  Pipes pipes_;
  SslPtr ssl_;  // its BIO points at pipes_
  asio::steady_timer flushed_;
  std::string sending_;
  bool flushing_ = false;
  bool broken_ = false;
  bool shut_ = false;
  bool closed_ = false;
  std::optional<milliseconds> read_timeout_;
  std::optional<milliseconds> write_timeout_;
};

std::string chosen_alpn(SSL* ssl) {
  const unsigned char* data = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &data, &size);
  return std::string(reinterpret_cast<const char*>(data), size);
}

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

// Which server this client wants, and how it will know it.
Result<void> expect_server(SSL* ssl, const std::string& name, TlsClientContext::Verify verify) {
  const bool address = is_address(name);
  if (!address && !name.empty() && SSL_set_tlsext_host_name(ssl, name.c_str()) != 1)
    return openssl_error("set the server name");
  if (verify == TlsClientContext::Verify::none) return {};
  if (name.empty())
    return make_error(Errc::invalid_argument, "a verified TLS connection needs a server name");
  X509_VERIFY_PARAM* param = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const int set = address ? X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str())
                          : X509_VERIFY_PARAM_set1_host(param, name.data(), name.size());
  if (set != 1) return openssl_error("expect a server name");
  return {};
}

}  // namespace

Task<Result<TlsStream>> accept_tls(std::unique_ptr<Stream> plain,
                                   std::shared_ptr<TlsServerContext> context, milliseconds limit,
                                   std::string first) {
  SslPtr ssl = static_cast<TlsServerContextImpl&>(*context).make_ssl();
  if (!ssl) co_return openssl_error("make a TLS connection");
  SSL_set_accept_state(ssl.get());
  auto stream = std::make_unique<TlsOverStream>(std::move(plain), std::move(ssl), first);
  auto shaking = stream->handshake(limit);
  ATOLL_CO_TRY(co_await std::move(shaking));
  TlsStream out;
  out.alpn = chosen_alpn(stream->ssl());
  if (const char* name = SSL_get_servername(stream->ssl(), TLSEXT_NAMETYPE_host_name))
    out.server_name = name;
  out.stream = std::move(stream);
  co_return out;
}

Task<Result<TlsStream>> connect_tls(std::unique_ptr<Stream> plain,
                                    std::shared_ptr<TlsClientContext> context,
                                    std::string server_name, std::vector<std::string> alpn,
                                    milliseconds limit) {
  auto& impl = static_cast<TlsClientContextImpl&>(*context);
  SslPtr ssl = impl.make_ssl();
  if (!ssl) co_return openssl_error("make a TLS connection");
  ATOLL_CO_TRY(expect_server(ssl.get(), server_name, impl.verify()));
  ATOLL_CO_TRY_ASSIGN(const std::string wire, alpn_wire(alpn));
  if (!wire.empty() &&
      SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(wire.data()),
                          unsigned(wire.size())) != 0) {
    co_return openssl_error("offer protocols");
  }
  SSL_set_connect_state(ssl.get());
  auto stream = std::make_unique<TlsOverStream>(std::move(plain), std::move(ssl), "");
  auto shaking = stream->handshake(limit);
  ATOLL_CO_TRY(co_await std::move(shaking));
  TlsStream out;
  out.alpn = chosen_alpn(stream->ssl());
  out.server_name = std::move(server_name);
  out.stream = std::move(stream);
  co_return out;
}

}  // namespace atl::net
