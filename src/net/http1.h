// Inside of src/net: the receive buffer of a connection and the reader that turns it into heads and
// bodies.
#pragma once

#include <boost/system/error_code.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/http.h"

namespace atl::net {

// Bytes received and not yet used; belongs to one connection and lives as long as it.
class Http1Buffer {
 public:
  std::size_t size() const { return end_ - begin_; }
  std::string_view view() const { return {data_.data() + begin_, size()}; }
  std::size_t take(std::span<char> into);
  std::string take_all();
  void consume(std::size_t n);
  Task<Result<std::size_t>> fill(Stream& stream);  // 0 = the peer finished

 private:
  std::vector<char> data_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Reads one message after the other. After a head, it is the BodyReader of that message.
class Http1Reader final : public BodyReader {
 public:
  Http1Reader(Stream& stream, Http1Buffer& buffer, const HttpLimits& limits);
  ~Http1Reader() override;

  // nullopt: the peer closed between messages. out_of_range: the head is too large.
  Task<Result<std::optional<RequestHead>>> read_request();
  Task<Result<ResponseHead>> read_response(std::string_view request_method);

  Task<Result<std::size_t>> read_some(std::span<char> into) override;
  std::optional<std::uint64_t> content_length() const override { return length_; }
  bool at_end() const override { return mode_ == Mode::done; }
  bool keep_alive() const { return keep_alive_; }
  // Part of a head has come, so silence deserves an answer.
  bool head_begun() const { return head_begun_; }
  // Nothing of the body was asked for yet and the client waits for our word.
  bool awaits_continue() const { return expect_continue_; }

 private:
  enum class Mode { done, counted, chunked, until_close };

  struct ParserBase {
    virtual ~ParserBase() = default;
    virtual bool header_done() const = 0;
    virtual bool done() const = 0;
    virtual std::size_t put(std::string_view bytes, boost::system::error_code& ec) = 0;
    virtual std::size_t put_body(std::string_view bytes, std::span<char> into, std::size_t& got,
                                 boost::system::error_code& ec) = 0;
    virtual bool chunked() const = 0;
    virtual bool keep_alive() const = 0;
    virtual bool need_eof() const = 0;
    virtual std::optional<std::uint64_t> content_length() const = 0;
  };
  template <bool IsRequest>
  struct Parser;

  Task<Result<bool>> read_header(std::unique_ptr<ParserBase> parser);
  Task<Result<std::size_t>> read_chunked(std::span<char> into);

  Stream& stream_;
  Http1Buffer& buffer_;
  const HttpLimits& limits_;
  std::unique_ptr<ParserBase> parser_;
  Mode mode_ = Mode::done;
  std::optional<std::uint64_t> length_;
  std::uint64_t left_ = 0;
  bool keep_alive_ = true;
  bool expect_continue_ = false;
  bool head_begun_ = false;
};

// Header lines, with line breaks inside values made harmless.
void append_fields(std::string& out, const Headers& headers);
// One chunk of a chunked body; empty input writes nothing (an empty chunk would end the body).
Task<Result<void>> write_chunk(Stream& stream, std::string_view bytes);

}  // namespace atl::net
