// Theory of operation. A thread reads lines from stdin and posts them to the one thread of the
// io_context; each line becomes a coroutine with a connection of its own, so calls run at once and
// a notification overtakes a long call. `initialize` goes alone: what follows waits for the
// session that it brings. At the end of the input what is under way is finished, then the session
// is ended; SIGTERM and SIGINT end it at once.
#include "cli/mcp.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <semaphore>
#include <thread>

#include "base/encoding.h"
#include "base/ids.h"
#include "base/log.h"
#include "cli/remote.h"
#include "mcp/protocol/message.h"
#include "mcp/protocol/sse.h"
#include "sys/fd.h"

namespace atl::cli {
namespace {

namespace asio = boost::asio;
using mcp::RpcCode;

constexpr std::ptrdiff_t kMaxInFlight = 64;
constexpr std::size_t kMaxAnswer = 64 << 20;
constexpr std::chrono::seconds kEndTime{30};
constexpr std::chrono::seconds kSilence{60};  // of a server; a call has a sign of life every 5 s

// The ids of the requests in a line: whoever sent them waits for answers.
std::vector<json::value> request_ids(const mcp::Incoming& incoming) {
  std::vector<json::value> out;
  for (const mcp::Parsed& parsed : incoming.messages) {
    const auto* message = std::get_if<mcp::Message>(&parsed);
    if (message != nullptr && message->kind == mcp::Message::Kind::request)
      out.push_back(message->id);
  }
  return out;
}

bool is_initialize(const mcp::Incoming& incoming) {
  const auto* message = std::get_if<mcp::Message>(&incoming.messages[0]);
  return !incoming.batch && message != nullptr && message->method == "initialize" &&
         message->kind == mcp::Message::Kind::request;
}

struct Refusal {
  RpcCode code = RpcCode::unavailable;
  std::string message;
  std::string error;  // for programs
};

Refusal refusal_of(const Error& error) {
  if (error.code == Errc::unauthenticated || error.code == Errc::permission_denied)
    return {RpcCode::authentication_required, error.message, "authentication_required"};
  return {RpcCode::unavailable, error.message, "sandbox_unavailable"};
}

// Another answer than 2xx: JSON-RPC's words, or the API's.
Refusal refusal_of(int status, std::string_view body) {
  auto parsed = parse_json(body);
  const json::value none;
  const json::value& document = parsed.ok() ? *parsed : none;
  const json::object* object = document.if_object();
  const json::value* failure = object != nullptr ? object->if_contains("error") : nullptr;
  std::string message = text_of(failure != nullptr ? *failure : document, "message");
  if (message.empty()) message = "the server answered " + std::to_string(status);
  if (status == 401 || status == 403) {
    if (failure == nullptr)
      message += ". FIX: E2B_API_KEY must be a key of this server (`atoll key ls`)";
    return {RpcCode::authentication_required, message, "authentication_required"};
  }
  if (failure != nullptr) return {RpcCode(number_of(*failure, "code")), message, "invalid_request"};
  return {RpcCode::unavailable, message, "sandbox_unavailable"};
}

class Bridge {
 public:
  Bridge(const McpOptions& options, Result<Remote> remote)
      : options_(options),
        remote_(std::move(remote)),
        changed_(io_, asio::steady_timer::time_point::max()),
        key_(options.session.empty() ? "mcp-" + random_hex(16) : options.session) {}

  int run() {
    wake_ = sys::UniqueFd(::eventfd(0, EFD_CLOEXEC));
    asio::signal_set signals(io_, SIGTERM, SIGINT);
    signals.async_wait([this](const boost::system::error_code& ec, int) {
      if (!ec) finish(/*at_once=*/true);
    });
    auto work = asio::make_work_guard(io_);
    std::thread reader([this] { read_lines(); });
    io_.run();
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    slots_.release(kMaxInFlight);
    reader.join();
    return remote_.ok() && !output_broken_ ? 0 : 1;
  }

 private:
  // ---- stdin, on its own thread ----

  void read_lines() {
    std::string line;
    std::string buffer(64 << 10, '\0');
    bool too_long = false;
    for (;;) {
      pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      if (::poll(wait, 2, -1) < 0 && errno == EINTR) continue;
      if (wait[1].revents != 0) return;
      const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) break;
      std::string_view bytes(buffer.data(), std::size_t(n));
      while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, end);
        too_long = too_long || line.size() + piece.size() > mcp::kMaxMessage;
        if (!too_long) line += piece;
        if (end == std::string_view::npos) break;
        bytes.remove_prefix(end + 1);
        // What is too long is still told so: the codec refuses it by its size.
        if (too_long) line.assign(mcp::kMaxMessage + 1, ' ');
        submit(std::move(line));
        line.clear();
        too_long = false;
      }
    }
    if (!line.empty()) submit(std::move(line));
    asio::post(io_, [this] { finish(/*at_once=*/false); });
  }

  void submit(std::string line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    slots_.acquire();
    asio::post(io_, [this, line = std::move(line)]() mutable {
      ++in_flight_;
      asio::co_spawn(io_, handle(std::move(line)), [this](std::exception_ptr failure) {
        if (failure) log::error("a message was lost by an exception");
        --in_flight_;
        slots_.release();
        changed_.cancel();
      });
    });
  }

  // ---- stdout ----

  void print(std::string line) {
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty() && !output_broken_) {
      const ssize_t n = ::write(STDOUT_FILENO, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      // A host may have made its end of a pipe non-blocking for both.
      if (n < 0 && errno == EAGAIN) {
        pollfd room{STDOUT_FILENO, POLLOUT, 0};
        (void)::poll(&room, 1, -1);  // the next write tells
        continue;
      }
      if (n < 0) {
        output_broken_ = true;
        finish(/*at_once=*/true);
        return;
      }
      rest.remove_prefix(std::size_t(n));
    }
  }

  void refuse(const std::vector<json::value>& ids, const Refusal& refusal) {
    for (const json::value& id : ids) {
      print(json::serialize(mcp::make_failure(id, refusal.code, refusal.message,
                                              json::object{{"error", refusal.error}})));
    }
    if (ids.empty()) log::warn("a message was refused", {{"reason", refusal.message}});
  }

  // ---- messages ----

  net::Task<void> handle(std::string line) {
    const mcp::Incoming incoming = mcp::parse_incoming(line);
    if (const auto* malformed = std::get_if<mcp::Malformed>(&incoming.messages[0]);
        malformed != nullptr && !incoming.batch) {
      print(json::serialize(mcp::make_failure(*malformed)));
      co_return;
    }
    const std::vector<json::value> ids = request_ids(incoming);
    if (!remote_.ok()) {
      refuse(ids, refusal_of(remote_.error()));
      co_return;
    }
    while (initializing_) co_await wait_change();
    const bool first = is_initialize(incoming);
    if (first) {
      initializing_ = true;
      first_line_ = line;
      session_.clear();
    }
    auto passing = pass(line, ids, first);
    co_await std::move(passing);
    if (first) {
      initializing_ = false;
      changed_.cancel();
    }
  }

  net::Task<void> wait_change() {
    (void)co_await changed_.async_wait(asio::as_tuple(asio::use_awaitable));
  }

  net::Task<void> pass(std::string line, std::vector<json::value> ids, bool first) {
    for (int attempt = 0;; ++attempt) {
      auto posting = post(line, ids.size(), first);
      auto posted = co_await std::move(posting);
      if (!posted.ok()) {
        refuse(ids, refusal_of(posted.error()));
        co_return;
      }
      if (!posted->forgotten || first || attempt > 0) {
        if (posted->refusal) refuse(ids, *posted->refusal);
        co_return;
      }
      auto again = begin_again(posted->with_session);
      if (auto begun = co_await std::move(again); !begun.ok()) {
        refuse(ids, refusal_of(begun.error()));
        co_return;
      }
    }
  }

  struct Posted {
    std::optional<Refusal> refusal;
    bool forgotten = false;    // the server does not know the session
    std::string with_session;  // the one that was used
  };

  net::RequestHead head_of(std::string method, std::string target) const {
    net::RequestHead head;
    head.method = std::move(method);
    head.target = std::move(target);
    head.headers.add("Host", remote_->host);
    head.headers.add("X-API-Key", remote_->key);
    head.headers.add("X-Atoll-Session", key_);
    if (!options_.template_name.empty())
      head.headers.add("X-Atoll-Template", options_.template_name);
    if (!options_.workspace.empty()) head.headers.add("X-Atoll-Workspace", options_.workspace);
    if (options_.no_internet) head.headers.add("X-Atoll-Internet", "off");
    head.headers.add("Connection", "close");
    return head;
  }

  // `answers`: how many the client waits for.
  net::Task<Result<Posted>> post(std::string line, std::size_t answers, bool first) {
    auto opening = open_stream(*remote_);
    ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
    net::HttpClient client(std::move(stream));
    net::RequestHead head = head_of("POST", "/mcp");
    head.headers.add("Content-Type", "application/json");
    head.headers.add("Accept", "application/json, text/event-stream");
    Posted out;
    if (!first && !session_.empty()) {
      head.headers.add("Mcp-Session-Id", session_);
      out.with_session = session_;
    }
    client.stream().set_write_timeout(kSilence);
    auto sending = client.write_request(head, line);
    ATOLL_CO_TRY(co_await std::move(sending));
    client.stream().set_read_timeout(kSilence);
    auto reading = client.read_head();
    ATOLL_CO_TRY_ASSIGN(const net::ResponseHead answer, co_await std::move(reading));
    client.stream().set_read_timeout(kSilence);  // reading a head leaves none
    if (answer.status == 200 &&
        answer.headers.get("Content-Type").starts_with("text/event-stream")) {
      auto relaying = relay(client, answers);
      ATOLL_CO_TRY(co_await std::move(relaying));
      co_return out;
    }
    auto rest = client.body().read_all(kMaxAnswer);
    ATOLL_CO_TRY_ASSIGN(const std::string body, co_await std::move(rest));
    if (answer.status == 200) {
      if (first) session_ = answer.headers.get("Mcp-Session-Id");
      auto parsed = parse_json(body);
      if (!parsed.ok()) co_return std::move(parsed).error().with("the server's answer");
      if (!quiet_) print(json::serialize(*parsed));
    } else if (answer.status < 200 || answer.status > 299) {
      out.forgotten = answer.status == 404;
      out.refusal = refusal_of(answer.status, body);
    }
    co_return out;
  }

  // Events to lines, to the end of the answer. unavailable: it broke off before all was said.
  net::Task<Result<void>> relay(net::HttpClient& client, std::size_t expected) {
    mcp::SseReader events(kMaxAnswer);
    std::string buffer(64 << 10, '\0');
    std::size_t answered = 0;
    for (;;) {
      auto reading = client.body().read_some(buffer);
      auto n = co_await std::move(reading);
      if (!n.ok()) {
        if (answered >= expected) co_return Result<void>();
        co_return make_error(Errc::unavailable,
                             "the connection to the server broke: " + n.error().message);
      }
      if (*n == 0) co_return Result<void>();
      ATOLL_CO_TRY_ASSIGN(const std::vector<std::string> some,
                          events.feed(std::string_view(buffer).substr(0, *n)));
      for (const std::string& data : some) {
        auto parsed = parse_json(data);
        if (!parsed.ok()) co_return std::move(parsed).error().with("the server's answer");
        const json::object* object = parsed->if_object();
        if (object != nullptr && !object->contains("method")) ++answered;
        print(json::serialize(*parsed));
      }
    }
  }

  // The server forgot the session: another one, with the same words and the same sandbox. Only the
  // first of those who notice asks.
  net::Task<Result<void>> begin_again(std::string forgotten) {
    while (initializing_) co_await wait_change();
    if (first_line_.empty()) {
      co_return make_error(Errc::failed_precondition, "the client must begin with initialize");
    }
    if (session_ != forgotten) co_return Result<void>();
    log::info("the server forgot the session; beginning another one", {{"session", key_}});
    initializing_ = true;
    quiet_ = true;
    session_.clear();
    auto posting = post(first_line_, 1, true);
    auto posted = co_await std::move(posting);
    quiet_ = false;
    initializing_ = false;
    changed_.cancel();
    if (!posted.ok()) co_return std::move(posted).error();
    if (posted->refusal) co_return make_error(Errc::unavailable, posted->refusal->message);
    co_return Result<void>();
  }

  // ---- the end ----

  void finish(bool at_once) {
    at_once_ = at_once_ || at_once;
    changed_.cancel();
    if (finishing_) return;
    finishing_ = true;
    asio::co_spawn(io_, end(), [this](std::exception_ptr) { io_.stop(); });
  }

  net::Task<void> end() {
    while (in_flight_ > 0 && !at_once_) co_await wait_change();
    if (!remote_.ok() || session_.empty()) co_return;
    asio::steady_timer limit(io_, kEndTime);
    limit.async_wait([this](const boost::system::error_code& ec) {
      if (!ec) io_.stop();
    });
    auto deleting = end_session();
    if (auto done = co_await std::move(deleting); !done.ok())
      log::warn("the session could not be ended", {{"reason", done.error().message}});
  }

  net::Task<Result<void>> end_session() {
    auto opening = open_stream(*remote_);
    ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(opening));
    net::HttpClient client(std::move(stream));
    const char* what = options_.remove ? "remove" : options_.keep ? "keep" : "pause";
    net::RequestHead head = head_of("DELETE", std::string("/mcp?end=") + what);
    head.headers.add("Mcp-Session-Id", session_);
    auto asking = client.request(std::move(head), "");
    ATOLL_CO_TRY_ASSIGN(const net::HttpClient::Answer answer, co_await std::move(asking));
    if (answer.head.status != 204 && answer.head.status != 404) {
      co_return make_error(Errc::unavailable, refusal_of(answer.head.status, answer.body).message);
    }
    co_return Result<void>();
  }

  const McpOptions& options_;
  const Result<Remote> remote_;
  asio::io_context io_{1};
  asio::steady_timer changed_;  // cancelled when something below has changed
  std::counting_semaphore<2 * kMaxInFlight> slots_{kMaxInFlight};
  sys::UniqueFd wake_;
  const std::string key_;  // of the sandbox's session
  std::string session_;    // of MCP, as the server named it
  std::string first_line_;
  int in_flight_ = 0;
  bool initializing_ = false;
  bool quiet_ = false;
  bool finishing_ = false;
  bool at_once_ = false;
  bool output_broken_ = false;
};

}  // namespace

Result<int> mcp_bridge(const McpOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  if (options.keep && options.remove)
    return make_error(Errc::invalid_argument, "--keep and --remove exclude each other");
  Bridge bridge(options, find_remote(options.home));
  return bridge.run();
}

}  // namespace atl::cli
