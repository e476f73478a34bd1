#include "session/cluster.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>

#include "base/encoding.h"
#include "base/ids.h"
#include "base/log.h"
#include "client/server.h"
#include "session/dial.h"
#include "session/encode.h"
#include "session/inside.h"
#include "session/options.h"
#include "session/outcome.h"
#include "session/redis_table.h"

namespace atl::session {
namespace {

namespace asio = net::asio;

using Clock = std::chrono::steady_clock;
using Kind = RedisValue::Kind;
using std::chrono::milliseconds;

constexpr const char* kNodes = "atoll:nodes";
constexpr const char* kSecret = "atoll:secret";
constexpr const char* kKeys = "atoll:keys";
constexpr std::size_t kMaxAnswer = 16 << 20;
constexpr std::size_t kMaxCached = 10'000;
constexpr milliseconds kOwnerGoodFor{60'000};  // a sandbox never moves
constexpr milliseconds kNobodyGoodFor{1'000};
constexpr milliseconds kKeyGoodFor{5'000};

// KEYS: nodes. ARGV: node, its URL as JSON text.
constexpr std::string_view kBeat = R"lua(
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
return redis.call('HSET', KEYS[1], ARGV[1], '{"url":' .. ARGV[2] .. ',"seen":' .. now .. '}')
)lua";

constexpr std::string_view kFind = R"lua(
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
return {redis.call('HGET', KEYS[1], ARGV[1]), now}
)lua";

std::int64_t to_number(std::string_view text) {
  std::int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string session_target(const Slot& slot) { return "/sessions/" + percent_encode(slot.key); }

}  // namespace

Result<NodeAddress> parse_node_url(const std::string& url) {
  const auto bad = [&url] {
    return make_error(Errc::invalid_argument,
                      "not the address of a server: '" + url + "' (http://10.0.0.1:3000)");
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return bad();
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad();
  NodeAddress out;
  out.url = std::string(kScheme) + std::string(rest);
  const std::string_view port = rest.substr(colon + 1);
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || stop != port.data() + port.size() || out.port == 0) return bad();
  rest = rest.substr(0, colon);
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']')
    rest = rest.substr(1, rest.size() - 2);
  boost::system::error_code ec;
  asio::ip::make_address(std::string(rest), ec);
  if (ec) return bad();
  out.ip = rest;
  return out;
}

Cluster::Cluster(net::asio::io_context& io, Redis& redis, store::SessionRows& rows,
                 ClusterOptions options)
    : redis_(redis), rows_(rows), options_(std::move(options)), tasks_(io) {}
Cluster::~Cluster() = default;

// ---- telling the others ----

net::Task<void> Cluster::start(std::function<net::Task<Result<void>>()> on_back) {
  // Known to the others before the first request, if that is possible.
  auto beating = beat();
  if (auto done = co_await std::move(beating); !done.ok())
    log::warn("the session store does not answer", {{"error", done.error().message}});
  tasks_.spawn("session node", beat_for_ever(std::move(on_back)));
}

net::Task<void> Cluster::stop(milliseconds limit) {
  stopping_.set();
  tasks_.close();
  auto draining = tasks_.drain(limit);
  co_await std::move(draining);
}

// `on_back` runs beside the beats: it may have to wait for a key, and a node that is not heard of
// counts as dead.
net::Task<void> Cluster::beat_for_ever(std::function<net::Task<Result<void>>()> on_back) {
  bool told = false;  // whether `on_back` has been told of the present state of things
  std::shared_ptr<Outcome<void>> telling;
  bool warned = false;
  for (;;) {
    std::optional<Error> failure;
    auto beating = beat();
    auto forgotten = co_await std::move(beating);
    if (!forgotten.ok()) failure = std::move(forgotten).error();
    if (failure || *forgotten) told = false;
    if (telling && telling->done.is_set()) {
      if (!telling->result->ok()) {
        told = false;
        if (!failure) failure = telling->result->error();
      }
      telling.reset();
    }
    if (!failure && !told && !telling) {
      told = true;
      telling = std::make_shared<Outcome<void>>();
      tasks_.spawn("session table", run_to(telling, on_back()));
    }
    if (!failure && warned) log::info("the session store answers again");
    if (failure && !warned)
      log::warn("the session store does not answer", {{"error", failure->message}});
    warned = failure.has_value();
    auto waiting = stopping_.wait(options_.beat);
    if (co_await std::move(waiting)) co_return;
  }
}

net::Task<Result<bool>> Cluster::beat() {
  auto learning = learn_secret();
  ATOLL_CO_TRY_ASSIGN(const bool forgotten, co_await std::move(learning));
  auto telling =
      redis_.eval(kBeat, {kNodes}, {options_.node, json::serialize(json::value(options_.url))});
  ATOLL_CO_TRY(co_await std::move(telling));
  auto publishing = publish_keys();
  ATOLL_CO_TRY(co_await std::move(publishing));
  co_return forgotten;
}

net::Task<Result<bool>> Cluster::learn_secret() {
  auto making = redis_.run({"SET", kSecret, random_hex(32), "NX"});
  ATOLL_CO_TRY(co_await std::move(making));
  auto reading = redis_.run({"GET", kSecret});
  ATOLL_CO_TRY_ASSIGN(RedisValue value, co_await std::move(reading));
  std::lock_guard lock(mutex_);
  const bool another = secret_ != value.text;
  const bool forgotten = another && !secret_.empty();
  if (another) published_.reset();
  secret_ = std::move(value.text);
  co_return forgotten;
}

// What changed since the last time. The first time, what is there of an earlier process is read.
net::Task<Result<void>> Cluster::publish_keys() {
  ATOLL_CO_TRY_ASSIGN(const auto hashes, rows_.key_hashes());
  std::map<std::string, std::string> current;
  for (const store::KeyHash& key : hashes) current.emplace(key.hash, key.team);
  std::optional<std::map<std::string, std::string>> before;
  {
    std::lock_guard lock(mutex_);
    before = published_;
  }
  const std::string mine = options_.node + "\n";
  if (!before) {
    before.emplace();
    auto reading = redis_.run({"HGETALL", kKeys});
    ATOLL_CO_TRY_ASSIGN(const RedisValue all, co_await std::move(reading));
    for (std::size_t i = 0; i + 1 < all.items.size(); i += 2) {
      if (all.items[i + 1].text.starts_with(mine))
        before->emplace(all.items[i].text, all.items[i + 1].text.substr(mine.size()));
    }
  }
  if (*before != current) {
    for (const auto& [hash, team] : current) {
      if (const auto there = before->find(hash); there != before->end() && there->second == team)
        continue;
      auto writing = redis_.run({"HSET", kKeys, hash, mine + team});
      ATOLL_CO_TRY(co_await std::move(writing));
    }
    for (const auto& [hash, team] : *before) {
      if (current.contains(hash)) continue;
      auto removing = redis_.run({"HDEL", kKeys, hash});
      ATOLL_CO_TRY(co_await std::move(removing));
    }
  }
  std::lock_guard lock(mutex_);
  published_ = std::move(current);
  co_return Result<void>();
}

// ---- asking them ----

Error Cluster::silent(const std::string& node, const std::string& why) const {
  return make_error(Errc::unavailable, "the server that has the sandbox (node " + node +
                                           ") does not answer: " + why +
                                           ". Nothing was made or lost");
}

net::Task<Result<NodeAddress>> Cluster::find(std::string node) {
  auto asking = redis_.eval(kFind, {kNodes}, {node});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  if (answer.items.size() != 2 || answer.items[0].kind != Kind::text)
    co_return make_error(Errc::not_found, "nobody has heard of it");
  const auto told = parse_json(answer.items[0].text);
  const json::object* facts = told.ok() ? told->if_object() : nullptr;
  const json::value* url = facts != nullptr ? facts->if_contains("url") : nullptr;
  const json::value* seen = facts != nullptr ? facts->if_contains("seen") : nullptr;
  if (url == nullptr || !url->is_string() || seen == nullptr || !seen->is_int64())
    co_return make_error(Errc::not_found, "what the store tells of it cannot be read");
  ATOLL_CO_TRY_ASSIGN(NodeAddress out, parse_node_url(std::string(url->get_string())));
  out.alive = to_number(answer.items[1].text) - seen->get_int64() < options_.alive_for.count();
  co_return out;
}

net::Task<Result<bool>> Cluster::alive(std::string node) {
  auto finding = find(std::move(node));
  auto found = co_await std::move(finding);
  if (found.ok()) co_return found->alive;
  if (found.error().code == Errc::not_found) co_return false;
  co_return std::move(found).error();
}

net::Task<Result<net::HttpClient>> Cluster::connect(std::string node) {
  const auto until = Clock::now() + options_.retry_for;
  for (;;) {
    auto finding = find(node);
    auto found = co_await std::move(finding);
    if (!found.ok() && found.error().code != Errc::not_found) co_return std::move(found).error();
    std::string why = found.ok() ? found->url : found.error().message;
    if (found.ok()) {
      auto dialling = dial(found->ip, found->port, options_.connect_time);
      auto stream = co_await std::move(dialling);
      if (stream.ok()) co_return net::HttpClient(std::move(*stream));
      why += ": " + stream.error().message;
    }
    if (Clock::now() >= until) co_return silent(node, why);
    asio::steady_timer timer(co_await asio::this_coro::executor, options_.retry_every);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

net::Task<Result<net::HttpClient::Answer>> Cluster::ask_once(NodeAddress to, net::RequestHead head,
                                                             std::string body) {
  auto dialling = dial(to.ip, to.port, options_.connect_time);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
  stream->set_read_timeout(options_.answer_time);
  net::HttpClient client(std::move(stream));
  auto asking = client.request(std::move(head), std::move(body), kMaxAnswer);
  co_return co_await std::move(asking);
}

// Whatever is asked may be asked twice. A server that died is back in a moment if somebody starts
// it again; one that is just starting may not know the secret yet.
net::Task<Result<json::value>> Cluster::ask(std::string node, std::string team, std::string method,
                                            std::string target, std::string body) {
  const auto until = Clock::now() + options_.retry_for;
  for (;;) {
    auto finding = find(node);
    auto found = co_await std::move(finding);
    if (!found.ok() && found.error().code != Errc::not_found) co_return std::move(found).error();
    std::string why = found.ok() ? found->url : found.error().message;
    if (found.ok()) {
      net::RequestHead head;
      head.method = method;
      head.target = target;
      head.headers.add("Host", "localhost");
      if (!body.empty()) head.headers.add("Content-Type", "application/json");
      sign(head, team);
      auto asking = ask_once(*found, std::move(head), body);
      auto answer = co_await std::move(asking);
      const int status = answer.ok() ? answer->head.status : 0;
      if (status >= 200 && status <= 299) {
        if (answer->body.empty()) co_return json::value(nullptr);
        co_return parse_json(answer->body);
      }
      if (answer.ok() && status != 401 && status != 502) {
        const auto told = parse_json(answer->body);
        const json::value* message =
            told.ok() && told->is_object() ? told->get_object().if_contains("message") : nullptr;
        co_return make_error(client::code_of_status(status),
                             message != nullptr && message->is_string()
                                 ? std::string(message->get_string())
                                 : "node " + node + " answered " + std::to_string(status));
      }
      why += answer.ok() ? ": it answers " + std::to_string(status) : ": " + answer.error().message;
    }
    if (Clock::now() >= until) co_return silent(node, why);
    asio::steady_timer timer(co_await asio::this_coro::executor, options_.retry_every);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

net::Task<Result<Acquired>> Cluster::acquire(std::string node, Slot slot, Options options) {
  auto asking =
      ask(node, slot.team, "PUT", session_target(slot), json::serialize(encode_request(options)));
  ATOLL_CO_TRY_ASSIGN(const json::value told, co_await std::move(asking));
  ATOLL_CO_TRY_ASSIGN(Acquired acquired, parse_acquired(told));
  auto finding = find(node);
  ATOLL_CO_TRY_ASSIGN(const NodeAddress at, co_await std::move(finding));
  acquired.inside = inside_of(at.ip, at.port, acquired.session.sandbox_id,
                              acquired.sandbox.access_token.value_or(""),
                              acquired.sandbox.traffic_token.value_or(""), options_.connect_time);
  co_return acquired;
}

net::Task<Result<void>> Cluster::pause(std::string node, Slot slot) {
  auto asking = ask(node, slot.team, "POST", session_target(slot) + "/pause", "");
  ATOLL_CO_TRY(co_await std::move(asking));
  co_return Result<void>();
}

net::Task<Result<void>> Cluster::remove(std::string node, Slot slot) {
  auto asking = ask(node, slot.team, "DELETE", session_target(slot), "");
  ATOLL_CO_TRY(co_await std::move(asking));
  co_return Result<void>();
}

net::Task<Result<Session>> Cluster::info(std::string node, Slot slot) {
  auto asking = ask(node, slot.team, "GET", session_target(slot), "");
  ATOLL_CO_TRY_ASSIGN(const json::value told, co_await std::move(asking));
  co_return parse_session(told);
}

net::Task<Result<std::vector<Session>>> Cluster::list(std::string node, std::string team) {
  auto looking = alive(node);
  ATOLL_CO_TRY_ASSIGN(const bool lives, co_await std::move(looking));
  if (!lives) co_return silent(node, "it was not heard of lately");  // a list does not wait
  auto asking = ask(node, team, "GET", "/sessions?own=true", "");
  ATOLL_CO_TRY_ASSIGN(const json::value told, co_await std::move(asking));
  if (!told.is_array()) co_return make_error(Errc::data_loss, "the list of a node is not a list");
  std::vector<Session> out;
  for (const json::value& each : told.get_array()) {
    ATOLL_CO_TRY_ASSIGN(Session session, parse_session(each));
    out.push_back(std::move(session));
  }
  co_return out;
}

// ---- what they have ----

std::optional<Cluster::Cached> Cluster::cached(const Cache& cache, const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = cache.find(key);
  if (found == cache.end() || Clock::now() >= found->second.until) return std::nullopt;
  return found->second;
}

void Cluster::remember(Cache& cache, std::string key, std::optional<std::string> value,
                       milliseconds good_for) {
  std::lock_guard lock(mutex_);
  if (cache.size() >= kMaxCached) cache.clear();
  cache.insert_or_assign(std::move(key), Cached{std::move(value), Clock::now() + good_for});
}

net::Task<Result<std::optional<std::string>>> Cluster::owner_of(std::string sandbox) {
  if (const auto known = cached(owners_, sandbox)) co_return known->value;
  auto asking = redis_.run({"HGET", std::string(kSandboxesKey), sandbox});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  std::optional<std::string> owner;
  if (answer.kind == Kind::text && answer.text != options_.node) owner = answer.text;
  remember(owners_, std::move(sandbox), owner, owner ? kOwnerGoodFor : kNobodyGoodFor);
  co_return owner;
}

net::Task<Result<std::optional<std::string>>> Cluster::team_of_key(std::string hash) {
  if (const auto known = cached(teams_, hash)) co_return known->value;
  auto asking = redis_.run({"HGET", kKeys, hash});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  std::optional<std::string> team;
  const std::size_t end = answer.text.find('\n');
  // One of our own that the store does not know has been deleted.
  if (answer.kind == Kind::text && end != std::string::npos &&
      answer.text.substr(0, end) != options_.node)
    team = answer.text.substr(end + 1);
  remember(teams_, std::move(hash), team, team ? kKeyGoodFor : kNobodyGoodFor);
  co_return team;
}

std::string Cluster::secret() const {
  std::lock_guard lock(mutex_);
  return secret_;
}

void Cluster::sign(net::RequestHead& head, const std::string& team) const {
  session::sign(head, {options_.node, team}, secret(), now());
}

std::optional<Signed> Cluster::verify(const net::RequestHead& head) const {
  return session::verify(head, secret(), now());
}

}  // namespace atl::session
