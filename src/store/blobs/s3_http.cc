#include "store/blobs/s3_http.h"

#include <curl/curl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>
#include <cstring>
#include <mutex>

#include "base/encoding.h"
#include "base/ids.h"
#include "net/http.h"
#include "store/blobs/offload.h"
#include "store/blobs/s3_xml.h"

namespace atl::blobs {
namespace {

namespace asio = net::asio;

constexpr unsigned kThreads = 6;
constexpr int kAttempts = 4;
constexpr std::chrono::milliseconds kFirstWait{150};
constexpr long kConnectMs = 3000;
constexpr long kSilenceSeconds = 20;  // without a byte
constexpr long kWholeSeconds = 300;   // of one request, which has at most one part
constexpr long kBuffer = 256 << 10;
constexpr std::size_t kMaxIdle = kThreads;

std::string sha256_of(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  ATOLL_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  return hex_encode({reinterpret_cast<const char*>(digest), size});
}

// What libcurl's callbacks fill in.
struct Collected {
  CURL* curl = nullptr;
  S3Answer answer;
  std::span<char> into;
  std::size_t limit = 0;
  bool too_long = false;
};

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& collected = *static_cast<Collected*>(user);
  long status = 0;
  curl_easy_getinfo(collected.curl, CURLINFO_RESPONSE_CODE, &status);
  if (!collected.into.empty() && status >= 200 && status < 300) {
    std::size_t& have = collected.answer.size;
    if (size * count > collected.into.size() - have) {
      collected.too_long = true;
      return 0;
    }
    std::memcpy(collected.into.data() + have, data, size * count);
    have += size * count;
    return size * count;
  }
  if (collected.answer.body.size() + size * count > collected.limit) {
    collected.too_long = true;
    return 0;
  }
  collected.answer.body.append(data, size * count);
  return size * count;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  S3Answer& answer = static_cast<Collected*>(user)->answer;
  const std::string_view line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (net::iequals(name, "etag")) answer.etag = value;
    if (net::iequals(name, "content-length") && answer.total == 0) answer.total = number(value);
    // "bytes 0-99/1234"
    if (net::iequals(name, "content-range"))
      answer.total = number(value.substr(value.rfind('/') + 1));
  }
  return size * count;
}

// Not 0 ends the transfer; asked about once a second at least.
int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const std::atomic<bool>*>(user) ? 1 : 0;
}

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

Error curl_failure(CURLcode code) {
  const char* text = curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
      return make_error(Errc::unavailable,
                        std::string("the storage of workspaces does not answer (") + text + ")");
    default:
      return Error{Errc::unavailable, EPROTO,
                   std::string("the storage of workspaces cannot be used (") + text + ")"};
  }
}

}  // namespace

// A connection is kept with its handle.
struct S3Http::Handle {
  Handle() : curl(curl_easy_init()) { ATOLL_CHECK(curl != nullptr); }
  ~Handle() { curl_easy_cleanup(curl); }
  CURL* curl;
};

struct S3Http::Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<Handle>> handles;
};

S3Http::S3Http(S3Config config)
    : config_(std::move(config)), idle_(std::make_unique<Idle>()), pool_(kThreads) {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  ATOLL_CHECK(once == CURLE_OK);
}

S3Http::~S3Http() {
  stopping_ = true;
  pool_.stop();
  pool_.join();
}

std::unique_ptr<S3Http::Handle> S3Http::take_handle() {
  std::lock_guard lock(idle_->mutex);
  if (idle_->handles.empty()) return std::make_unique<Handle>();
  auto handle = std::move(idle_->handles.back());
  idle_->handles.pop_back();
  curl_easy_reset(handle->curl);
  return handle;
}

void S3Http::keep_handle(std::unique_ptr<Handle> handle) {
  std::lock_guard lock(idle_->mutex);
  if (idle_->handles.size() < kMaxIdle) idle_->handles.push_back(std::move(handle));
}

Result<S3Answer> S3Http::perform(const S3Request& request) {
  auto handle = take_handle();
  CURL* curl = handle->curl;
  std::string url = config_.base_url() + "/" + encode_key(request.key);
  if (!request.query.empty()) url += "?" + encode_query(request.query);
  const std::string signing = "aws:amz:" + config_.region + ":s3";

  HeaderList headers;
  // libcurl 7.88 signs every header of this list, so none may stand here that it would not send.
  headers.add("x-amz-content-sha256: " + sha256_of(request.body));
  if (!request.body.empty()) headers.add("Content-Type: application/octet-stream");
  if (!config_.session_token.empty()) headers.add("x-amz-security-token: " + config_.session_token);
  Collected collected;
  collected.curl = curl;
  collected.into = request.into;
  collected.limit = request.limit;

  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBuffer);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, kBuffer);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signing.c_str());
  curl_easy_setopt(curl, CURLOPT_USERNAME, config_.access_key.c_str());
  curl_easy_setopt(curl, CURLOPT_PASSWORD, config_.secret_key.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);  // bodies are small
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, kWholeSeconds);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &collected);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &collected);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &stopping_);
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
  }
  if (request.method != "HEAD")
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!request.range.empty()) curl_easy_setopt(curl, CURLOPT_RANGE, request.range.c_str());

  const CURLcode code = curl_easy_perform(curl);
  if (collected.too_long)
    return make_error(Errc::data_loss, "the storage of workspaces answers more than it should");
  if (code != CURLE_OK) return curl_failure(code);  // the handle goes with its connection
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &collected.answer.status);
  keep_handle(std::move(handle));
  if (collected.answer.status < 200 || collected.answer.status > 299)
    return s3_error(collected.answer.status, collected.answer.body);
  return std::move(collected.answer);
}

net::Task<Result<S3Answer>> S3Http::send(S3Request request) {
  std::chrono::milliseconds wait = kFirstWait;
  for (int attempt = 1;; ++attempt) {
    auto performing = offload(pool_, [this, &request] { return perform(request); });
    auto answer = co_await std::move(performing);
    if (answer.ok() || attempt == kAttempts || !is_retryable(answer.error())) co_return answer;
    // Between a half and the whole, so that many do not come back at one time.
    const auto spread = static_cast<unsigned char>(random_bytes(1)[0]);
    asio::steady_timer timer(co_await asio::this_coro::executor, wait / 2 + wait * spread / 510);
    auto [ec] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    (void)ec;
    wait *= 3;
  }
}

std::string encode_key(std::string_view key) {
  std::string out;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    if (begin > 0) out += '/';
    out += percent_encode(key.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string encode_query(std::vector<std::pair<std::string, std::string>> query) {
  // The signature is over the sorted parameters, and libcurl 7.88 takes them as they stand.
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    out += percent_encode(name) + "=" + percent_encode(value);
  }
  return out;
}

Error s3_error(long status, std::string_view body) {
  const XmlFields fields = parse_fields(body);
  const std::string code = fields.first("Code");
  const std::string what = (code.empty() ? "" : code + ", ") + "status " + std::to_string(status);
  if (code == "NoSuchBucket") {
    return make_error(Errc::failed_precondition,
                      "the bucket of the workspaces does not exist (" + what + ")");
  }
  if (status == 404) return make_error(Errc::not_found, "there is no such blob (" + what + ")");
  if (status == 416) return make_error(Errc::out_of_range, "beyond the end (" + what + ")");
  if (status == 403 || status == 401 || code == "AuthorizationHeaderMalformed") {
    return make_error(Errc::permission_denied,
                      "the storage of workspaces refuses the server's keys (" + what +
                          "). The operator must check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
                          "and the region of --blobs");
  }
  if (status == 507)
    return Error{Errc::resource_exhausted, ENOSPC, "the storage of workspaces is full"};
  if (status >= 500 || status == 429 || status == 408)
    return make_error(Errc::unavailable,
                      "the storage of workspaces does not work now (" + what + ")");
  return make_error(Errc::internal, "the storage of workspaces refuses a request (" + what +
                                        "): " + fields.first("Message"));
}

bool is_retryable(const Error& error) {
  return error.code == Errc::unavailable && error.sys_errno != EPROTO;
}

}  // namespace atl::blobs
