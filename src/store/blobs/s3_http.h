// One signed request to an S3 server: libcurl on a thread of a pool, retried where that helps.
//
// libcurl signs (Signature Version 4). It hashes no uploads by itself, so each request carries the
// hash of its body, and a server that checks it notices a changed byte. Bodies are whole in memory,
// in both directions, and bounded by the caller: an object is sent in parts and read by ranges.
// Long ones are the caller's buffers: what threads of a pool allocate and others free stays with
// the process.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/task.h"
#include "store/blobs/s3_config.h"

namespace atl::blobs {

struct S3Request {
  std::string method = "GET";
  std::string key;                                         // with the prefix; empty: the bucket
  std::vector<std::pair<std::string, std::string>> query;  // not encoded
  std::string_view body;                                   // lives until the answer
  std::string range;                                       // "0-99"; empty: all
  std::size_t limit = 4 << 20;                             // of the answer's body
  std::span<char> into = {};  // where the body of a good answer goes, if not into the answer
};

struct S3Answer {
  long status = 0;
  std::string body;
  std::size_t size = 0;  // of what went into the request's `into`
  std::string etag;
  std::uint64_t total = 0;  // length of the whole object, of a GET by range or a HEAD
};

class S3Http {
 public:
  explicit S3Http(S3Config config);
  ~S3Http();
  S3Http(const S3Http&) = delete;
  S3Http& operator=(const S3Http&) = delete;

  const S3Config& config() const { return config_; }

  // A 2xx answer. Errors: not_found (404, NoSuchKey); failed_precondition (NoSuchBucket);
  // permission_denied (the keys are not accepted); unavailable (no answer, 5xx, 429, after four
  // attempts); out_of_range (416). Messages name the server's code.
  net::Task<Result<S3Answer>> send(S3Request request);

 private:
  struct Handle;
  Result<S3Answer> perform(const S3Request& request);  // on a thread of the pool
  std::unique_ptr<Handle> take_handle();
  void keep_handle(std::unique_ptr<Handle> handle);

  const S3Config config_;
  std::atomic<bool> stopping_ = false;
  struct Idle;
  std::unique_ptr<Idle> idle_;
  net::asio::thread_pool pool_;
};

// As in a URL: path segments keep '/'.
std::string encode_key(std::string_view key);
std::string encode_query(std::vector<std::pair<std::string, std::string>> query);  // sorted

// What a refusal of an S3 server means; `body` is its XML.
Error s3_error(long status, std::string_view body);
bool is_retryable(const Error& error);

}  // namespace atl::blobs
