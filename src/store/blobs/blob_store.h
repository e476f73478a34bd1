// BlobStore: named pieces of bytes that survive restarts, in a directory or in a bucket.
//
// A blob is written once, whole: it is visible under its key from the moment when all of it is
// kept, never before, and a put whose source fails changes nothing. One that fails otherwise may
// have been done, and only its answer be lost. Content goes through in pieces of bounded size, in
// both directions.
//
// Keys are made by our own code (key.h), never by users: segments of safe characters with '/'
// between them. A key is never the beginning of another one up to a '/'. Lists have an order of the
// storage's own, always the same, in which names that share all but their last segment are ordered
// by their bytes and keys with a common beginning up to a '/' are together. (Amazon orders whole
// keys by bytes; some servers order folder by folder.)
//
// Calls may come from any strand. Errors of all: unavailable (the storage does not answer, or
// refuses the server; the message says which), resource_exhausted with ENOSPC (it is full).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/task.h"

namespace atl::blobs {

// Bytes on their way: fills as much as it likes of what it is given; 0 is the end.
using Source = std::function<net::Task<Result<std::size_t>>(std::span<char>)>;

struct Blob {
  std::string key;
  std::uint64_t size = 0;
};

struct Page {
  std::vector<Blob> items;
  bool more = false;
};

// A blob that is being read.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::uint64_t size() const = 0;
  // 0 is the end. data_loss: it is shorter than it should be.
  virtual net::Task<Result<std::size_t>> read_some(std::span<char> into) = 0;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Answers how long it is, when it is kept. An error of the source is passed on. Replaces what
  // was there.
  virtual net::Task<Result<std::uint64_t>> put(std::string key, Source source) = 0;
  // not_found.
  virtual net::Task<Result<std::unique_ptr<Reader>>> get(std::string key) = 0;
  virtual net::Task<Result<Blob>> stat(std::string key) = 0;
  // Those that begin with `prefix` and come after `after`, at most `limit`. `after` may be a key
  // that does not exist in a folder that does.
  virtual net::Task<Result<Page>> list(std::string prefix, std::string after,
                                       std::size_t limit) = 0;
  // Fine if there is none.
  virtual net::Task<Result<void>> remove(std::string key) = 0;
  // Removes what is left of puts that an earlier life of this server did not finish. Where servers
  // share the storage, `mine` says of a key whether this was the one that wrote it, in an earlier
  // life; otherwise it must be called before the first put.
  virtual net::Task<Result<void>> clean_up(std::function<bool(std::string_view)> mine) = 0;

  // Others may write to it as well.
  virtual bool shared() const = 0;
  // For logs; no secrets.
  virtual std::string describe() const = 0;

  // Small ones, whole.
  net::Task<Result<void>> put_text(std::string key, std::string text);
  // resource_exhausted: longer than `limit`.
  net::Task<Result<std::string>> get_text(std::string key, std::size_t limit);
};

// Reads until `into` is full or the source ends.
net::Task<Result<std::size_t>> fill(const Source& source, std::span<char> into);
// A source of bytes that are all there.
Source text_source(std::string text);

}  // namespace atl::blobs
