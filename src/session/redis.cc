#include "session/redis.h"

#include <hiredis/hiredis.h>
#include <poll.h>

#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/encoding.h"
#include "session/outcome.h"

namespace atl::session {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMaxDepth = 8;

struct FreeContext {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, FreeContext>;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

timeval to_timeval(milliseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {whole.count(), std::chrono::microseconds(time - whole).count()};
}

RedisValue to_value(const redisReply& reply, int depth = 0) {
  RedisValue out;
  switch (reply.type) {
    case REDIS_REPLY_INTEGER:
      out.kind = RedisValue::Kind::integer;
      out.integer = reply.integer;
      break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      out.kind = RedisValue::Kind::text;
      out.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_ARRAY:
      out.kind = RedisValue::Kind::list;
      for (std::size_t i = 0; i < reply.elements && depth < kMaxDepth; ++i)
        out.items.push_back(to_value(*reply.element[i], depth + 1));
      break;
    default:
      break;
  }
  return out;
}

struct Job {
  std::vector<std::string> command;
  Clock::time_point until;
  std::shared_ptr<Outcome<RedisValue>> outcome = std::make_shared<Outcome<RedisValue>>();

  void answer(Result<RedisValue> result) const {
    outcome->result.emplace(std::move(result));
    outcome->done.set();
  }
};

}  // namespace

std::string RedisAddress::shown() const {
  const bool v6 = host.find(':') != std::string::npos;
  return "redis://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port) +
         (database != 0 ? "/" + std::to_string(database) : "");
}

Result<RedisAddress> parse_redis_url(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  const auto bad = [](std::string_view what) {
    return make_error(
        Errc::invalid_argument,
        "--store: " + std::string(what) + " (redis://[[user]:password@]host[:port][/database])");
  };
  const auto number = [](std::string_view text, auto& into) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && stop == text.data() + text.size();
  };
  if (!url.starts_with(kScheme)) return bad("not a redis:// URL");
  url.remove_prefix(kScheme.size());
  RedisAddress out;
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = url.substr(0, at);
    const std::size_t colon = login.find(':');
    if (colon == std::string_view::npos) return bad("a login is user:password");
    const auto user = percent_decode(login.substr(0, colon));
    const auto password = percent_decode(login.substr(colon + 1));
    if (!user || !password || password->empty()) return bad("the login cannot be read");
    out.user = *user;
    out.password = *password;
    url.remove_prefix(at + 1);
  }
  if (const std::size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view database = url.substr(slash + 1);
    if (!database.empty() && !number(database, out.database)) return bad("not a database number");
    url = url.substr(0, slash);
  }
  const std::size_t bracket = url.rfind(']');
  const std::size_t colon = url.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    if (!number(url.substr(colon + 1), out.port) || out.port == 0) return bad("not a port");
    url = url.substr(0, colon);
  }
  if (url.size() > 2 && url.front() == '[' && url.back() == ']')
    url = url.substr(1, url.size() - 2);
  if (url.empty()) return bad("no host");
  out.host = url;
  return out;
}

struct Redis::State {
  State(RedisAddress a, RedisOptions o) : address(std::move(a)), options(o) {}

  const RedisAddress address;
  const RedisOptions options;
  std::mutex mutex;  // guards the three below
  std::condition_variable changed;
  std::deque<Job> queue;
  bool stop = false;
  std::vector<std::thread> threads;

  Error failure(std::string_view why) const {
    return make_error(Errc::unavailable, "the session store at " + address.shown() +
                                             " does not answer: " + std::string(why) +
                                             ". Nothing was made or lost");
  }

  Result<Context> connect() const {
    const timeval limit = to_timeval(options.connect_time);
    Context context(redisConnectWithTimeout(address.host.c_str(), address.port, limit));
    if (!context) return failure("no memory");
    if (context->err != 0) return failure(context->errstr);
    redisSetTimeout(context.get(), to_timeval(options.command_time));
    std::vector<std::vector<std::string>> first;
    if (!address.password.empty()) {
      first.push_back({"AUTH"});
      if (!address.user.empty()) first.back().push_back(address.user);
      first.back().push_back(address.password);
    }
    if (address.database != 0) first.push_back({"SELECT", std::to_string(address.database)});
    for (const auto& command : first) {
      ATOLL_TRY(send(*context, command));
    }
    return context;
  }

  Result<RedisValue> send(redisContext& context, const std::vector<std::string>& command) const {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& each : command) {
      texts.push_back(each.data());
      sizes.push_back(each.size());
    }
    const Reply reply(static_cast<redisReply*>(
        redisCommandArgv(&context, int(texts.size()), texts.data(), sizes.data())));
    if (!reply) return failure(context.errstr);
    if (reply->type == REDIS_REPLY_ERROR) return failure(std::string(reply->str, reply->len));
    return to_value(*reply);
  }

  // What arrives on a connection that nobody asked anything is its end.
  static bool closed(const redisContext& context) {
    pollfd look{context.fd, POLLIN, 0};
    return context.err != 0 || ::poll(&look, 1, 0) != 0;
  }

  Result<RedisValue> execute(Context& context, const std::vector<std::string>& command) const {
    for (;;) {
      if (context && closed(*context)) context.reset();
      const bool fresh = !context;
      if (fresh) {
        ATOLL_TRY_ASSIGN(context, connect());
      }
      auto answer = send(*context, command);
      if (context->err == 0) return answer;
      const bool ended = context->err == REDIS_ERR_EOF || context->err == REDIS_ERR_IO;
      const bool timed_out = context->err == REDIS_ERR_IO && errno == EAGAIN;
      context.reset();
      if (fresh || !ended || timed_out) return answer;
    }
  }

  void work() {
    Context context;
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stop || !queue.empty(); });
        if (stop) return;
        job = std::move(queue.front());
        queue.pop_front();
      }
      // Nobody waits for it any more: it must not happen later.
      if (Clock::now() >= job.until) {
        job.answer(failure("too many commands wait for it"));
        continue;
      }
      job.answer(execute(context, job.command));
    }
  }
};

Redis::Redis(RedisAddress address, RedisOptions options)
    : state_(std::make_shared<State>(std::move(address), options)) {
  for (unsigned i = 0; i < options.threads; ++i)
    state_->threads.emplace_back([state = state_.get()] { state->work(); });
}

Redis::~Redis() {
  std::deque<Job> left;
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    left.swap(state_->queue);
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
  for (const Job& job : left) job.answer(state_->failure("the server is shutting down"));
}

const RedisAddress& Redis::address() const { return state_->address; }

net::Task<Result<RedisValue>> Redis::run(std::vector<std::string> command) {
  const auto state = state_;
  Job job{std::move(command), Clock::now() + state->options.deadline};
  const auto outcome = job.outcome;
  {
    std::lock_guard lock(state->mutex);
    if (state->stop) co_return state->failure("the server is shutting down");
    if (state->queue.size() >= state->options.queue)
      co_return state->failure("too many commands wait for it");
    state->queue.push_back(std::move(job));
  }
  state->changed.notify_one();
  auto waiting = outcome->done.wait(state->options.deadline + state->options.connect_time +
                                    state->options.command_time);
  if (!co_await std::move(waiting)) co_return state->failure("it takes too long");
  co_return std::move(*outcome->result);
}

net::Task<Result<RedisValue>> Redis::eval(std::string_view script, std::vector<std::string> keys,
                                          std::vector<std::string> arguments) {
  std::vector<std::string> command{"EVAL", std::string(script), std::to_string(keys.size())};
  for (std::string& key : keys) command.push_back(std::move(key));
  for (std::string& argument : arguments) command.push_back(std::move(argument));
  auto running = run(std::move(command));
  co_return co_await std::move(running);
}

}  // namespace atl::session
