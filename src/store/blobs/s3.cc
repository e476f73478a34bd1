#include "store/blobs/s3.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <charconv>
#include <cstring>

#include "base/encoding.h"
#include "base/log.h"
#include "store/blobs/key.h"
#include "store/blobs/s3_http.h"
#include "store/blobs/s3_xml.h"
#include "store/blobs/slots.h"

namespace atl::blobs {
namespace {

namespace asio = net::asio;

constexpr std::size_t kPart = 8 << 20;
constexpr std::size_t kFirst = 64 << 10;  // most blobs are tiny
constexpr std::size_t kRange = 4 << 20;
constexpr int kMaxParts = 10'000;
constexpr std::size_t kListPage = 1000;  // no server gives more
constexpr std::size_t kLongPuts = 16;    // at a time: each takes the memory of two parts
constexpr std::chrono::seconds kPutPatience{60};

// As BlobStore tells it: whose fault it is decides, not which request failed.
Error told(Error error) {
  if (error.code == Errc::permission_denied || error.code == Errc::failed_precondition) {
    error.code = Errc::unavailable;
    error.sys_errno = EACCES;
  }
  return error;
}

template <class T>
Result<T> told(Result<T> result) {
  if (result.ok()) return result;
  return told(std::move(result).error());
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string field(const XmlFields::Record& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() ? std::string() : found->second;
}

net::Task<void> send_into(S3Http& http, S3Request request,
                          std::optional<Result<S3Answer>>& outcome) {
  auto sending = http.send(std::move(request));
  outcome.emplace(co_await std::move(sending));
}

net::Task<void> fill_into(const Source& source, std::span<char> into,
                          std::optional<Result<std::size_t>>& outcome) {
  auto filling = fill(source, into);
  outcome.emplace(co_await std::move(filling));
}

// A multipart upload.
struct Upload {
  std::string key;
  std::string id;
  std::vector<std::string> etags;
  std::uint64_t size = 0;
};

class RangeReader final : public Reader {
 public:
  // not_found.
  static net::Task<Result<std::unique_ptr<Reader>>> open(S3Http& http, std::string key) {
    std::unique_ptr<RangeReader> reader(new RangeReader(http, std::move(key)));
    auto fetching = reader->fetch(kFirst);
    auto fetched = co_await std::move(fetching);
    // An empty object has no range.
    if (!fetched.ok() && fetched.error().code != Errc::out_of_range)
      co_return std::move(fetched).error();
    co_return std::move(reader);
  }

  std::uint64_t size() const override { return size_; }

  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    if (at_ == have_) {
      begin_ += have_;
      at_ = have_ = 0;
      if (begin_ >= size_) co_return std::size_t(0);
      auto fetching = fetch(kRange);
      ATOLL_CO_TRY(co_await std::move(fetching));
    }
    const std::size_t count = std::min(into.size(), have_ - at_);
    std::memcpy(into.data(), piece_.data() + at_, count);
    at_ += count;
    co_return count;
  }

 private:
  RangeReader(S3Http& http, std::string key) : http_(http), key_(std::move(key)) {}

  // The next piece, of at most `wanted` bytes.
  net::Task<Result<void>> fetch(std::size_t wanted) {
    if (piece_.size() < wanted) piece_.resize(wanted);
    S3Request request{.key = key_,
                      .range = std::to_string(begin_) + "-" + std::to_string(begin_ + wanted - 1),
                      .into = std::span(piece_).first(wanted)};
    auto sending = http_.send(std::move(request));
    auto answer = told(co_await std::move(sending));
    if (!answer.ok()) co_return std::move(answer).error();
    if (begin_ == 0) size_ = answer->total;
    if (answer->total != size_ || answer->size != std::min<std::uint64_t>(wanted, size_ - begin_))
      co_return make_error(Errc::data_loss, "the storage gave another part of a blob than asked");
    have_ = answer->size;
    co_return Result<void>();
  }

  S3Http& http_;
  const std::string key_;
  std::vector<char> piece_;  // its first `have_` bytes are those from `begin_`
  std::size_t have_ = 0;
  std::size_t at_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
};

class S3Store final : public BlobStore {
 public:
  explicit S3Store(S3Config config) : http_(std::move(config)) {}

  net::Task<Result<std::uint64_t>> put(std::string key, Source source) override {
    ATOLL_CO_TRY(check_key(key));
    std::vector<char> buffer(kFirst);
    auto filling = fill(source, buffer);
    ATOLL_CO_TRY_ASSIGN(std::size_t have, co_await std::move(filling));
    std::optional<Slots::Slot> slot;
    if (have == buffer.size()) {
      auto taking = long_puts_.take(kPutPatience);
      auto taken = co_await std::move(taking);
      if (!taken.ok()) {
        co_return make_error(Errc::unavailable,
                             "too many files are on their way to the storage of workspaces");
      }
      slot.emplace(std::move(*taken));
      buffer.resize(kPart);
      auto rest = fill(source, std::span(buffer).subspan(have));
      ATOLL_CO_TRY_ASSIGN(const std::size_t more, co_await std::move(rest));
      have += more;
    }
    if (have == kPart) {
      auto uploading = put_parts(full(key), std::move(source), std::move(buffer));
      co_return told(co_await std::move(uploading));
    }
    S3Request request{.method = "PUT", .key = full(key), .body = {buffer.data(), have}};
    auto sending = http_.send(std::move(request));
    auto answer = told(co_await std::move(sending));
    if (!answer.ok()) co_return std::move(answer).error();
    co_return std::uint64_t(have);
  }

  net::Task<Result<std::unique_ptr<Reader>>> get(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    auto opening = RangeReader::open(http_, full(key));
    co_return co_await std::move(opening);
  }

  net::Task<Result<Blob>> stat(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    S3Request request{.method = "HEAD", .key = full(key)};
    auto sending = http_.send(std::move(request));
    auto answer = told(co_await std::move(sending));
    if (!answer.ok()) co_return std::move(answer).error();
    co_return Blob{std::move(key), answer->total};
  }

  net::Task<Result<Page>> list(std::string prefix, std::string after, std::size_t limit) override {
    Page out;
    std::string token;
    for (;;) {
      const std::size_t wanted = std::min(limit - out.items.size(), kListPage);
      S3Request request{.query = {{"list-type", "2"},
                                  {"encoding-type", "url"},
                                  {"max-keys", std::to_string(wanted)},
                                  {"prefix", full(prefix)}}};
      if (!token.empty()) {
        request.query.emplace_back("continuation-token", token);
      } else if (!after.empty()) {
        request.query.emplace_back("start-after", full(after));
      }
      auto sending = http_.send(std::move(request));
      auto answer = told(co_await std::move(sending));
      if (!answer.ok()) co_return std::move(answer).error();
      const XmlFields fields = parse_fields(answer->body, "Contents");
      if (!fields.well_formed())
        co_return make_error(Errc::unavailable, "the storage's list cannot be read");
      const bool encoded = fields.first("EncodingType") == "url";
      for (const XmlFields::Record& record : fields.records()) {
        std::string key = field(record, "Key");
        if (encoded) key = percent_decode(key).value_or("");
        if (key.size() <= http_.config().prefix.size() || key.ends_with('/')) continue;
        out.items.push_back(
            {key.substr(http_.config().prefix.size()), number(field(record, "Size"))});
      }
      token = fields.first("NextContinuationToken");
      const bool more = fields.first("IsTruncated") == "true" && !token.empty();
      if (!more || out.items.size() >= limit) {
        out.more = more;
        co_return out;
      }
    }
  }

  net::Task<Result<void>> remove(std::string key) override {
    ATOLL_CO_TRY(check_key(key));
    S3Request request{.method = "DELETE", .key = full(key)};
    auto sending = http_.send(std::move(request));
    auto answer = told(co_await std::move(sending));
    if (!answer.ok() && answer.error().code != Errc::not_found) co_return std::move(answer).error();
    co_return Result<void>();
  }

  net::Task<Result<void>> clean_up(std::function<bool(std::string_view)> mine) override {
    std::string key_marker;
    std::string id_marker;
    for (;;) {
      S3Request request{.query = {{"uploads", ""}, {"prefix", http_.config().prefix}}};
      if (!key_marker.empty()) {
        request.query.emplace_back("key-marker", key_marker);
        request.query.emplace_back("upload-id-marker", id_marker);
      }
      auto sending = http_.send(std::move(request));
      auto answer = told(co_await std::move(sending));
      if (!answer.ok()) co_return std::move(answer).error();
      const XmlFields fields = parse_fields(answer->body, "Upload");
      for (const XmlFields::Record& record : fields.records()) {
        const std::string key = field(record, "Key");
        const std::string& prefix = http_.config().prefix;
        if (!key.starts_with(prefix) || !mine(std::string_view(key).substr(prefix.size())))
          continue;
        log::info("an unfinished upload of an earlier life is removed", {{"key", key}});
        auto aborting = abort(key, field(record, "UploadId"));
        ATOLL_CO_TRY(co_await std::move(aborting));
      }
      if (fields.first("IsTruncated") != "true") co_return Result<void>();
      key_marker = fields.first("NextKeyMarker");
      id_marker = fields.first("NextUploadIdMarker");
      if (key_marker.empty()) co_return Result<void>();
    }
  }

  bool shared() const override { return true; }
  std::string describe() const override { return http_.config().describe(); }

 private:
  std::string full(const std::string& key) const { return http_.config().prefix + key; }

  net::Task<Result<void>> abort(std::string key, std::string id) {
    S3Request request{.method = "DELETE", .key = std::move(key), .query = {{"uploadId", id}}};
    auto sending = http_.send(std::move(request));
    auto answer = told(co_await std::move(sending));
    if (!answer.ok() && answer.error().code != Errc::not_found) co_return std::move(answer).error();
    co_return Result<void>();
  }

  // `buffer` is the first part, whole.
  net::Task<Result<std::uint64_t>> put_parts(std::string key, Source source,
                                             std::vector<char> buffer) {
    S3Request request{.method = "POST", .key = key, .query = {{"uploads", ""}}};
    auto sending = http_.send(std::move(request));
    ATOLL_CO_TRY_ASSIGN(const S3Answer begun, co_await std::move(sending));
    Upload upload{std::move(key), parse_fields(begun.body).first("UploadId"), {}, 0};
    if (upload.id.empty())
      co_return make_error(Errc::unavailable, "the storage began no upload of several parts");
    auto sending_parts = send_parts(upload, std::move(source), std::move(buffer));
    auto sent = co_await std::move(sending_parts);
    if (sent.ok()) {
      auto completing = complete(upload);
      sent = co_await std::move(completing);
    }
    if (!sent.ok()) {
      auto aborting = abort(upload.key, upload.id);
      if (auto aborted = co_await std::move(aborting); !aborted.ok())
        log::warn("an unfinished upload stays until the next start",
                  {{"key", upload.key}, {"error", aborted.error().message}});
      co_return std::move(sent).error();
    }
    co_return upload.size;
  }

  // Sends one part while it reads the next.
  net::Task<Result<void>> send_parts(Upload& upload, Source source, std::vector<char> buffer) {
    using namespace asio::experimental::awaitable_operators;
    std::vector<char> next(kPart);
    std::size_t have = buffer.size();
    while (have > 0) {
      if (upload.etags.size() == kMaxParts)
        co_return make_error(Errc::out_of_range, "longer than the storage of workspaces can keep");
      S3Request request{.method = "PUT",
                        .key = upload.key,
                        .query = {{"partNumber", std::to_string(upload.etags.size() + 1)},
                                  {"uploadId", upload.id}},
                        .body = {buffer.data(), have}};
      std::optional<Result<S3Answer>> sent;
      std::optional<Result<std::size_t>> filled;
      auto sending = send_into(http_, std::move(request), sent);
      if (have < kPart) {  // the last one
        co_await std::move(sending);
        filled.emplace(std::size_t(0));
      } else {
        auto filling = fill_into(source, next, filled);
        co_await (std::move(sending) && std::move(filling));
      }
      if (!sent->ok()) co_return std::move(*sent).error();
      if (!filled->ok()) co_return std::move(*filled).error();
      upload.etags.push_back(std::move((**sent).etag));
      upload.size += have;
      buffer.swap(next);
      have = **filled;
    }
    co_return Result<void>();
  }

  net::Task<Result<void>> complete(const Upload& upload) {
    std::string body = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < upload.etags.size(); ++i) {
      body += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" +
              xml_escaped(upload.etags[i]) + "</ETag></Part>";
    }
    body += "</CompleteMultipartUpload>";
    S3Request request{
        .method = "POST", .key = upload.key, .query = {{"uploadId", upload.id}}, .body = body};
    auto sending = http_.send(std::move(request));
    auto answer = co_await std::move(sending);
    // Failures after the head was sent come with status 200.
    if (answer.ok()) {
      const std::string code = parse_fields(answer->body).first("Code");
      if (code.empty()) co_return Result<void>();
      answer = s3_error(500, answer->body);
    }
    // It may have been completed by an attempt whose answer was lost.
    if (answer.error().code == Errc::not_found || answer.error().code == Errc::unavailable) {
      S3Request look{.method = "HEAD", .key = upload.key};
      auto looking = http_.send(std::move(look));
      auto found = co_await std::move(looking);
      if (found.ok() && found->total == upload.size) co_return Result<void>();
    }
    co_return std::move(answer).error();
  }

  S3Http http_;
  Slots long_puts_{kLongPuts};
};

}  // namespace

std::unique_ptr<BlobStore> open_s3(S3Config config) {
  return std::make_unique<S3Store>(std::move(config));
}

}  // namespace atl::blobs
