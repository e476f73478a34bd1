#include "net/http2.h"

#include <gmock/gmock.h>

#include <boost/asio/executor_work_guard.hpp>

#include "net/tls_testing.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::Http2Client;
using testing::pause_for;

Task<void> echo(Exchange& x) {
  auto body = co_await x.body.read_all(1 << 20);
  Headers headers{{"X-Method", x.request.method},
                  {"X-Target", x.request.target},
                  {"X-Host", std::string(x.request.headers.get("host"))},
                  {"X-Cookie", std::string(x.request.headers.get("Cookie"))},
                  {"Connection", "close"},
                  {"Transfer-Encoding", "chunked"},
                  {"X-Bad", " a\r\nInjected: yes "}};
  (void)co_await x.response.send(200, headers, body.ok() ? *body : body.error().message);
}

class Http2Test : public testing::HttpsTest {
 protected:
  using Body = std::function<Task<void>(Http2Client&)>;

  // Connects and runs `body`; `body` is a function without captures of its own coroutine's state.
  void with_client(Body body, Http2Client::Windows windows = Http2Client::Windows::automatic) {
    run(driver(dial({"h2"}), std::move(body), windows));
  }

 private:
  static Task<int> driver(Task<Result<TlsStream>> dialling, Body body,
                          Http2Client::Windows windows) {
    auto tls = co_await std::move(dialling);
    EXPECT_TRUE(tls.ok()) << tls.error().message;
    if (!tls.ok()) co_return 0;
    EXPECT_EQ(tls->alpn, "h2");
    Http2Client client(std::move(tls->stream), windows);
    co_await body(client);
    co_return 1;
  }
};

TEST_F(Http2Test, RequestsBecomeExchanges) {
  serve(echo);
  with_client([](Http2Client& c) -> Task<void> {
    auto a = co_await c.fetch("POST", "/x?q=1", {{"cookie", "a=1"}, {"cookie", "b=2"}},
                              std::make_shared<std::string>("hello"));
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.error, 0u);
    EXPECT_EQ(a.body, "hello");
    EXPECT_EQ(a.headers["x-method"], "POST");
    EXPECT_EQ(a.headers["x-target"], "/x?q=1");
    EXPECT_EQ(a.headers["x-host"], "localhost");
    EXPECT_EQ(a.headers["x-cookie"], "a=1; b=2");
    EXPECT_EQ(a.headers["content-length"], "5");
    EXPECT_EQ(a.headers["x-bad"], "a  Injected: yes");
    EXPECT_EQ(a.headers.count("connection"), 0u);
    EXPECT_EQ(a.headers.count("transfer-encoding"), 0u);
    EXPECT_EQ(c.settings[NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS], 250u);
    auto head = co_await c.fetch("HEAD", "/");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.received, 0u);
    EXPECT_EQ(head.error, 0u);
  });
}

TEST_F(Http2Test, ConnectionsHeadersAndOtherNonsenseAreRefused) {
  serve(echo);
  with_client([](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"connection", "close"}})).error,
              unsigned(NGHTTP2_PROTOCOL_ERROR));
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"transfer-encoding", "chunked"}})).error,
              unsigned(NGHTTP2_PROTOCOL_ERROR));
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"host", "other"}})).status, 400);
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"host", "LOCALHOST"}})).status, 200);
    // The length promised and the bytes sent differ.
    EXPECT_EQ((co_await c.fetch("POST", "/", {{"content-length", "3"}},
                                std::make_shared<std::string>("four")))
                  .error,
              unsigned(NGHTTP2_PROTOCOL_ERROR));
    const auto id = c.request_fields({{":method", "CONNECT"}, {":authority", "10.0.0.1:22"}});
    (void)co_await c.until([&] { return c.answer(id).closed; });
    EXPECT_EQ(c.answer(id).status, 501);
    // RFC 8441 is not offered.
    const auto websocket = c.request_fields({{":method", "CONNECT"},
                                             {":protocol", "websocket"},
                                             {":scheme", "https"},
                                             {":path", "/"},
                                             {":authority", "localhost"}});
    (void)co_await c.until([&] { return c.answer(websocket).closed; });
    EXPECT_EQ(c.answer(websocket).error, unsigned(NGHTTP2_PROTOCOL_ERROR));
    EXPECT_EQ((co_await c.fetch("GET", "/")).status, 200);  // the connection lives
  });
}

TEST_F(Http2Test, StreamingAnswersAreFlushedAtOnce) {
  auto next = std::make_shared<int>(0);
  serve([next](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    for (int i = 0; i < 3; ++i) {
      (void)co_await x.response.write("piece " + std::to_string(i));
      while (*next <= i) co_await pause_for(milliseconds(2));
    }
    (void)co_await x.response.finish();
  });
  with_client([next](Http2Client& c) -> Task<void> {
    const auto id = c.request("GET", "/");
    std::string want;
    for (int i = 0; i < 3; ++i) {
      want += "piece " + std::to_string(i);
      EXPECT_TRUE(co_await c.until([&] { return c.answer(id).body == want; }));
      EXPECT_FALSE(c.answer(id).ended);
      ++*next;
    }
    EXPECT_TRUE(co_await c.until([&] { return c.answer(id).closed; }));
    EXPECT_EQ(c.answer(id).error, 0u);
  });
}

TEST_F(Http2Test, BidirectionalStreaming) {
  serve([](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    std::vector<char> buffer(30'000);
    for (;;) {
      auto n = co_await x.body.read_some(buffer);
      if (!n.ok() || *n == 0) break;
      (void)co_await x.response.write(std::string_view(buffer.data(), *n));
    }
    (void)co_await x.response.finish();
  });
  with_client([](Http2Client& c) -> Task<void> {
    auto body = std::make_shared<std::string>();
    for (std::size_t i = 0; i < (5 << 20); ++i) *body += char(i * 11 >> 4);
    auto a = co_await c.fetch("POST", "/", {}, body);
    EXPECT_EQ(a.error, 0u);
    EXPECT_TRUE(a.body == *body) << a.body.size();
  });
}

TEST_F(Http2Test, AHundredStreamsAtOnce) {
  auto most = std::make_shared<std::pair<int, int>>();  // now, at most
  serve([most](Exchange& x) -> Task<void> {
    most->second = std::max(most->second, ++most->first);
    auto body = co_await x.body.read_all(1 << 20);
    co_await pause_for(milliseconds(50));
    --most->first;
    (void)co_await x.response.send(200, {}, *body + x.request.target);
  });
  with_client([](Http2Client& c) -> Task<void> {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 100; ++i) {
      ids.push_back(c.request("POST", "/" + std::to_string(i), {},
                              std::make_shared<std::string>(std::string(5000, 'b'))));
    }
    EXPECT_TRUE(co_await c.until([&] {
      return std::all_of(ids.begin(), ids.end(), [&](auto id) { return c.answer(id).closed; });
    }));
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(c.answer(ids[std::size_t(i)]).body,
                std::string(5000, 'b') + "/" + std::to_string(i));
    }
  });
  EXPECT_EQ(most->second, 100);
}

TEST_F(Http2Test, AbortResetsOneStreamOnly) {
  serve([](Exchange& x) -> Task<void> {
    if (x.request.target == "/whole") {
      (void)co_await x.response.send(200, {}, "fine");
      co_return;
    }
    (void)co_await x.response.start(200, {}, std::nullopt);
    (void)co_await x.response.write("part");
    if (x.request.target == "/abort") x.response.abort();
    // "/forgot": returns without finishing
  });
  with_client([](Http2Client& c) -> Task<void> {
    for (const char* path : {"/abort", "/forgot"}) {
      auto a = co_await c.fetch("GET", path);
      EXPECT_EQ(a.status, 200);
      EXPECT_FALSE(a.ended);
      EXPECT_EQ(a.error, unsigned(NGHTTP2_INTERNAL_ERROR));
      EXPECT_EQ((co_await c.fetch("GET", "/whole")).body, "fine");
    }
  });
}

TEST_F(Http2Test, AShorterBodyThanPromisedIsABrokenStream) {
  serve([](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, 10);
    (void)co_await x.response.write("123");
    EXPECT_FALSE((co_await x.response.write("12345678")).ok());
    EXPECT_FALSE((co_await x.response.finish()).ok());
  });
  with_client([](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/")).error, unsigned(NGHTTP2_INTERNAL_ERROR));
  });
}

TEST_F(Http2Test, AnswersWithoutABodyHaveNone) {
  serve([](Exchange& x) -> Task<void> {
    const int status = std::stoi(x.request.target.substr(1));
    (void)co_await x.response.start(status, {{"ETag", "e"}}, 0);
    (void)co_await x.response.finish();
  });
  with_client([](Http2Client& c) -> Task<void> {
    for (const char* status : {"204", "304", "200"}) {
      auto a = co_await c.fetch("GET", std::string("/") + status);
      EXPECT_EQ(a.headers[":status"], status);
      EXPECT_EQ(a.error, 0u);
      EXPECT_TRUE(a.ended);
      EXPECT_EQ(a.headers.count("content-length"), std::string(status) == "204" ? 0u : 1u);
    }
  });
}

TEST_F(Http2Test, AThrowingHandlerGives500) {
  serve([](Exchange& x) -> Task<void> {
    if (x.request.target == "/throw") throw std::runtime_error("boom");
    co_return;
  });
  with_client([](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/throw")).status, 500);
    EXPECT_EQ((co_await c.fetch("GET", "/nothing")).status, 500);
  });
}

TEST_F(Http2Test, TheClientsResetIsNoticedByItsHandlerOnly) {
  struct Seen {
    int gone = 0;
    bool read_failed = false;
    bool write_failed = false;
    int running = 0;
  };
  auto seen = std::make_shared<Seen>();
  serve([seen](Exchange& x) -> Task<void> {
    ++seen->running;
    if (x.request.target == "/read") {
      char buffer[100];
      seen->read_failed = !(co_await x.body.read_some(buffer)).ok();
    } else if (x.request.target == "/write") {
      (void)co_await x.response.start(200, {}, std::nullopt);
      const std::string much(1 << 20, 'x');
      seen->write_failed = !(co_await x.response.write(much)).ok();
    } else {
      (void)co_await x.response.start(200, {}, std::nullopt);
      co_await x.stream.wait_peer_closed();
      ++seen->gone;
    }
    --seen->running;
  });
  with_client(
      [seen](Http2Client& c) -> Task<void> {
        const auto stays = c.request("GET", "/stays");
        const auto goes = c.request("GET", "/goes");
        const auto reads = c.request("POST", "/read", {}, std::make_shared<std::string>(), false);
        const auto writes = c.request("GET", "/write");
        (void)co_await c.until([&] { return seen->running == 4; }, milliseconds(100));
        EXPECT_EQ(seen->running, 4);
        for (const auto id : {goes, reads, writes})
          nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
        (void)co_await c.until([] { return false; }, milliseconds(100));
        EXPECT_EQ(seen->gone, 1);
        EXPECT_TRUE(seen->read_failed);
        EXPECT_TRUE(seen->write_failed);
        EXPECT_EQ(seen->running, 1);
        EXPECT_FALSE(c.answer(stays).closed);
      },
      Http2Client::Windows::manual);
  auto wait = [](std::shared_ptr<Seen> s) -> Task<int> {
    for (int i = 0; i < 400 && s->running > 0; ++i) co_await pause_for(milliseconds(5));
    co_return s->running;
  };
  EXPECT_EQ(run(wait(seen)), 0) << "the end of the connection ends the last handler";
  EXPECT_EQ(seen->gone, 2);
}

TEST_F(Http2Test, ASlowReaderHoldsBackItsHandlerAndNobodyElse) {
  auto written = std::make_shared<std::size_t>(0);
  serve([written](Exchange& x) -> Task<void> {
    if (x.request.target != "/much") {
      (void)co_await x.response.send(200, {}, "");
      co_return;
    }
    (void)co_await x.response.start(200, {}, std::nullopt);
    const std::string piece(64 * 1024, 'x');
    for (int i = 0; i < 100; ++i) {
      if (!(co_await x.response.write(piece)).ok()) co_return;
      *written += piece.size();
    }
    (void)co_await x.response.finish();
  });
  with_client(
      [written](Http2Client& c) -> Task<void> {
        const auto id = c.request("GET", "/much");
        (void)co_await c.until([] { return false; }, milliseconds(200));
        EXPECT_EQ(c.answer(id).received, 65'535u);  // the window of HTTP/2's start
        EXPECT_LE(*written, 2u * 64 * 1024);
        EXPECT_EQ((co_await c.fetch("GET", "/small")).status, 200);
        std::size_t credited = 0;
        (void)co_await c.until([&] {
          const std::size_t received = c.answer(id).received;
          if (received > credited) {
            nghttp2_session_consume(c.session, id, received - credited);
            credited = received;
          }
          return c.answer(id).closed;
        });
        EXPECT_EQ(c.answer(id).received, 100u * 64 * 1024);
        EXPECT_EQ(c.answer(id).error, 0u);
      },
      Http2Client::Windows::manual);
}

TEST_F(Http2Test, AClientThatTakesNothingIsGivenUp) {
  ServerOptions options;
  options.limits.write_time = milliseconds(150);
  auto failed = std::make_shared<Errc>(Errc::unknown);
  serve(
      [failed](Exchange& x) -> Task<void> {
        auto sent = co_await x.response.send(200, {}, std::string(1 << 20, 'x'));
        if (!sent.ok()) *failed = sent.error().code;
      },
      options);
  with_client(
      [](Http2Client& c) -> Task<void> {
        auto a = co_await c.fetch("GET", "/");
        EXPECT_EQ(a.error, unsigned(NGHTTP2_INTERNAL_ERROR));
      },
      Http2Client::Windows::manual);
  EXPECT_EQ(*failed, Errc::deadline_exceeded);
}

TEST_F(Http2Test, AnUploadThatNobodyReadsIsHeldBack) {
  auto go = std::make_shared<bool>(false);
  serve([go](Exchange& x) -> Task<void> {
    while (!*go) co_await pause_for(milliseconds(5));
    std::vector<char> buffer(10'000);
    std::size_t total = 0;
    for (;;) {
      auto n = co_await x.body.read_some(buffer);
      if (!n.ok() || *n == 0) break;
      total += *n;
    }
    (void)co_await x.response.send(200, {}, std::to_string(total));
  });
  with_client([go](Http2Client& c) -> Task<void> {
    const auto id =
        c.request("POST", "/", {}, std::make_shared<std::string>(std::string(4 << 20, 'x')));
    (void)co_await c.until([] { return false; }, milliseconds(200));
    EXPECT_LE(c.uploaded(id), 512u * 1024);
    *go = true;
    EXPECT_TRUE(co_await c.until([&] { return c.answer(id).closed; }));
    EXPECT_EQ(c.answer(id).body, std::to_string(4 << 20));
  });
}

TEST_F(Http2Test, ARefusedUploadStillSeesTheAnswer) {
  serve([](Exchange& x) -> Task<void> { (void)co_await x.response.send(413, {}, "too big"); });
  with_client([](Http2Client& c) -> Task<void> {
    const auto large = std::make_shared<std::string>(std::string(4 << 20, 'x'));
    auto a = co_await c.fetch("POST", "/", {}, large);
    EXPECT_EQ(a.status, 413);
    EXPECT_EQ(a.body, "too big");
    EXPECT_EQ(a.error, 0u);
    // One that never ends is asked to stop.
    const auto id = c.request("POST", "/", {}, std::make_shared<std::string>("x"), false);
    EXPECT_TRUE(co_await c.until([&] { return c.answer(id).closed; }));
    EXPECT_EQ(c.answer(id).status, 413);
    EXPECT_TRUE(c.answer(id).ended);
    EXPECT_EQ(c.answer(id).error, unsigned(NGHTTP2_NO_ERROR));
  });
}

TEST_F(Http2Test, ExpectContinue) {
  serve(echo);
  with_client([](Http2Client& c) -> Task<void> {
    auto a = co_await c.fetch("POST", "/", {{"expect", "100-continue"}},
                              std::make_shared<std::string>("hi"));
    EXPECT_THAT(a.interim, ::testing::ElementsAre(100));
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.body, "hi");
  });
}

TEST_F(Http2Test, BodySilenceTimesOutWhereTheHandlerWantsIt) {
  serve([](Exchange& x) -> Task<void> {
    x.stream.set_read_timeout(milliseconds(50));
    char buffer[100];
    auto n = co_await x.body.read_some(buffer);
    (void)co_await x.response.send(!n.ok() && n.error().code == Errc::deadline_exceeded ? 408 : 200,
                                   {}, "");
  });
  with_client([](Http2Client& c) -> Task<void> {
    const auto id = c.request("POST", "/", {}, std::make_shared<std::string>(), false);
    (void)co_await c.until([&] { return c.answer(id).ended; });
    EXPECT_EQ(c.answer(id).status, 408);
  });
}

TEST_F(Http2Test, MoreStreamsThanAllowedAreRefused) {
  ServerOptions options;
  options.max_streams = 10;
  auto running = std::make_shared<int>(0);
  serve(
      [running](Exchange& x) -> Task<void> {
        ++*running;
        EXPECT_LE(*running, 10);
        co_await pause_for(milliseconds(30));
        --*running;
        (void)co_await x.response.send(200, {}, "");
      },
      options);
  with_client([](Http2Client& c) -> Task<void> {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 30; ++i) ids.push_back(c.request("GET", "/"));
    (void)co_await c.until([&] {
      return std::all_of(ids.begin(), ids.end(), [&](auto id) { return c.answer(id).closed; });
    });
    int fine = 0;
    int refused = 0;
    for (const auto id : ids) {
      fine += c.answer(id).status == 200;
      refused += c.answer(id).error == NGHTTP2_REFUSED_STREAM;
    }
    EXPECT_EQ(fine + refused, 30);
    EXPECT_GE(fine, 10);
    EXPECT_EQ((co_await c.fetch("GET", "/")).status, 200);
  });
}

TEST_F(Http2Test, LargeHeadsGet431AndHugeOnesAReset) {
  ServerOptions options;
  options.limits.header_bytes = 4096;
  serve(echo, options);
  with_client([](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"x", std::string(5000, 'a')}})).status, 431);
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"x", std::string(30'000, 'a')}})).error,
              unsigned(NGHTTP2_INTERNAL_ERROR));
    // HPACK names a large field again and again in a byte each.
    Http2Client::Fields bomb;
    for (int i = 0; i < 1000; ++i) bomb.emplace_back("x-bomb", std::string(3000, 'b'));
    EXPECT_EQ((co_await c.fetch("GET", "/", bomb)).error, unsigned(NGHTTP2_INTERNAL_ERROR));
    EXPECT_EQ((co_await c.fetch("GET", "/", {{"x", "small"}})).status, 200);
  });
}

TEST_F(Http2Test, RapidResetEndsTheConnection) {
  auto handled = std::make_shared<int>(0);
  serve([handled](Exchange& x) -> Task<void> {
    ++*handled;
    co_await pause_for(milliseconds(500));
    (void)co_await x.response.send(200, {}, "");
  });
  with_client([handled](Http2Client& c) -> Task<void> {
    for (int i = 0; i < 300 && !c.goaway && !c.ended; ++i) {
      for (int k = 0; k < 10; ++k) {
        const auto id = c.request("GET", "/");
        (void)co_await c.flush();
        nghttp2_submit_rst_stream(c.session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
      }
      (void)co_await c.until([] { return false; }, milliseconds(1));
    }
    (void)co_await c.until([&] { return c.ended; });
    EXPECT_EQ(c.goaway.value_or(0), unsigned(NGHTTP2_ENHANCE_YOUR_CALM));
    EXPECT_LE(*handled, 501);  // handlers of reset streams count
  });
}

TEST_F(Http2Test, ResetsThatTheClientProvokesCountToo) {
  serve(echo);
  with_client([](Http2Client& c) -> Task<void> {
    for (int i = 0; i < 300 && !c.goaway && !c.ended; ++i) {
      for (int k = 0; k < 10; ++k) c.request("GET", "/", {{"connection", "close"}});
      (void)co_await c.until([] { return false; }, milliseconds(1));
    }
    (void)co_await c.until([&] { return c.ended; });
    EXPECT_EQ(c.goaway.value_or(0), unsigned(NGHTTP2_ENHANCE_YOUR_CALM));
  });
}

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
  std::string out;
  for (int shift : {16, 8, 0}) out += char(payload.size() >> shift);
  out += char(type);
  out += char(flags);
  for (int shift : {24, 16, 8, 0}) out += char(stream >> shift);
  return out + payload;
}

// The error of the GOAWAY frame in what the server sent, up to the end of the connection.
Task<std::uint32_t> raw_goaway(Stream& stream) {
  std::string all;
  std::vector<char> buffer(64 * 1024);
  stream.set_read_timeout(std::chrono::seconds(5));
  for (;;) {
    auto n = co_await stream.read_some(buffer);
    if (!n.ok() || *n == 0) break;
    all.append(buffer.data(), *n);
  }
  const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(all[i])); };
  for (std::size_t at = 0; at + 9 <= all.size();) {
    const std::size_t size = byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2);
    if (all[at + 3] == NGHTTP2_GOAWAY && at + 17 <= all.size())
      co_return byte(at + 13) << 24 | byte(at + 14) << 16 | byte(at + 15) << 8 | byte(at + 16);
    at += 9 + size;
  }
  co_return 9999;
}

// Sends rude frames behind the client's back, again and again.
Task<void> flood(Http2Client& c, std::string frames, std::uint32_t want) {
  EXPECT_EQ((co_await c.fetch("GET", "/")).status, 200);
  for (int i = 0; i < 20; ++i) {
    if (!(co_await c.stream().write_all(frames)).ok()) break;
  }
  EXPECT_EQ(co_await raw_goaway(c.stream()), want);
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST_F(Http2Test, FloodsEndTheConnection) {
  serve(echo);
  const std::vector<std::pair<std::string, std::string>> floods = {
      {"ping", repeated(frame(NGHTTP2_PING, 0, 0, std::string(8, 'p')), 100)},
      {"settings", repeated(frame(NGHTTP2_SETTINGS, 0, 0, ""), 100)},
      {"empty", frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 3, "\x83\x84\x87\x41\x01h") +
                    repeated(frame(NGHTTP2_DATA, 0, 3, ""), 1500)},
      {"priority", repeated(frame(NGHTTP2_PRIORITY, 0, 3, std::string(5, '\0')), 100)},
  };
  for (const auto& [name, frames] : floods) {
    SCOPED_TRACE(name);
    with_client([&frames](Http2Client& c) -> Task<void> {
      return flood(c, frames, NGHTTP2_ENHANCE_YOUR_CALM);
    });
  }
}

TEST_F(Http2Test, ContinuationFloodEndsTheConnection) {
  serve(echo);
  // A head that never ends: :method GET, then CONTINUATION without END_HEADERS.
  std::string frames = frame(NGHTTP2_HEADERS, 0, 3, "\x82");
  frames += repeated(frame(NGHTTP2_CONTINUATION, 0, 3,
                           "\x10\x01"
                           "a\x01"
                           "b"),
                     50);
  with_client(
      [&frames](Http2Client& c) -> Task<void> { return flood(c, frames, NGHTTP2_PROTOCOL_ERROR); });
}

TEST_F(Http2Test, GarbageEndsTheConnection) {
  serve(echo);
  auto task = [](Task<Result<TlsStream>> dialling) -> Task<int> {
    auto tls = co_await std::move(dialling);
    (void)co_await tls->stream->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    char buffer[1000];
    tls->stream->set_read_timeout(std::chrono::seconds(5));
    for (;;) {
      auto n = co_await tls->stream->read_some(buffer);
      if (!n.ok()) co_return n.error().code == Errc::deadline_exceeded ? 0 : 1;
      if (*n == 0) co_return 1;
    }
  };
  EXPECT_EQ(run(task(dial({"h2"}))), 1);
}

TEST_F(Http2Test, SlowHeadsAndSilenceEndTheConnection) {
  ServerOptions options;
  options.limits.header_time = milliseconds(150);
  options.limits.idle_time = milliseconds(400);
  serve(echo, options);
  const auto ends = [](Stream& stream) -> Task<milliseconds> {
    const auto begun = std::chrono::steady_clock::now();
    std::vector<char> buffer(4096);
    stream.set_read_timeout(std::chrono::seconds(5));
    for (;;) {
      auto n = co_await stream.read_some(buffer);
      if (!n.ok() || *n == 0) break;
    }
    co_return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  };
  auto no_preface = [](Task<Result<TlsStream>> dialling, auto wait) -> Task<milliseconds> {
    auto tls = co_await std::move(dialling);
    co_return co_await wait(*tls->stream);
  };
  milliseconds took = run(no_preface(dial({"h2"}), ends));
  EXPECT_GE(took, milliseconds(100));
  EXPECT_LT(took, milliseconds(390));
  with_client([&](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/")).status, 200);
    (void)co_await c.stream().write_all(frame(NGHTTP2_HEADERS, 0, 3, "\x82"));
    const milliseconds slow_head = co_await ends(c.stream());
    EXPECT_GE(slow_head, milliseconds(100));
    EXPECT_LT(slow_head, milliseconds(390));
  });
  with_client([&](Http2Client& c) -> Task<void> {
    EXPECT_EQ((co_await c.fetch("GET", "/")).status, 200);
    const auto begun = std::chrono::steady_clock::now();
    (void)co_await c.until([&] { return c.ended; });
    EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(350));
    EXPECT_EQ(c.goaway.value_or(99), unsigned(NGHTTP2_NO_ERROR));
  });
}

TEST_F(Http2Test, PingIsAnswered) {
  serve(echo);
  with_client([](Http2Client& c) -> Task<void> {
    nghttp2_submit_ping(c.session, NGHTTP2_FLAG_NONE, nullptr);
    EXPECT_TRUE(co_await c.until([&] { return c.pongs == 1; }));
  });
}

TEST_F(Http2Test, ShutdownSaysGoawayAndLetsStreamsFinish) {
  serve([](Exchange& x) -> Task<void> {
    co_await pause_for(milliseconds(200));
    (void)co_await x.response.send(200, {}, "done");
  });
  auto stopped = std::make_shared<bool>(false);
  with_client([this, stopped](Http2Client& c) -> Task<void> {
    const auto id = c.request("GET", "/");
    (void)co_await c.until([] { return false; }, milliseconds(50));
    asio::co_spawn(io_, server_->shutdown(milliseconds(2000)),
                   [stopped](std::exception_ptr) { *stopped = true; });
    (void)co_await c.until([&] { return c.ended; });
    EXPECT_EQ(c.goaway.value_or(99), unsigned(NGHTTP2_NO_ERROR));
    EXPECT_EQ(c.answer(id).body, "done");
    c.stream().close();
    for (int i = 0; i < 100 && !*stopped; ++i) co_await pause_for(milliseconds(10));
    EXPECT_TRUE(*stopped);
    EXPECT_EQ(server_->connections(), 0u);
  });
}

TEST_F(Http2Test, CurlSendsManyInParallel) {
  serve([](Exchange& x) -> Task<void> {
    co_await pause_for(milliseconds(5));
    (void)co_await x.response.send(200, {}, x.request.target + "\n");
  });
  std::string config;
  for (int i = 0; i < 200; ++i) config += "url = \"" + url("/" + std::to_string(i)) + "\"\n";
  certs_.put("urls", config);
  const std::string out =
      curl("--no-progress-meter --http2 --parallel --parallel-max 200 -w '%{http_version} ' -K " +
           certs_.path("urls"));
  EXPECT_THAT(out, HasSubstr("/199\n"));
  EXPECT_THAT(out, HasSubstr("exit 0"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 200);
}

}  // namespace
}  // namespace atl::net
