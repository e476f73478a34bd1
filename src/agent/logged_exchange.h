// The exchange of a file request as handlers see it: an answer that is an error becomes an entry of
// the log. Wraps `inner`, which outlives it, as does the log.
#pragma once

#include "agent/log_ring.h"
#include "net/http.h"

namespace atl::agent {

class LoggedExchange final : public net::Exchange {
 public:
  LoggedExchange(net::Exchange& inner, LogRing& logs);
  std::string take_over() override { return inner_.take_over(); }

 private:
  class Writer final : public net::ResponseWriter {
   public:
    Writer(net::Exchange& inner, LogRing& logs) : inner_(inner), logs_(logs) {}
    net::Task<Result<void>> send(int status, net::Headers headers, std::string body) override;
    net::Task<Result<void>> start(int status, net::Headers headers,
                                  std::optional<std::uint64_t> length) override {
      return inner_.response.start(status, std::move(headers), length);
    }
    net::Task<Result<void>> write(std::string_view bytes) override {
      return inner_.response.write(bytes);
    }
    net::Task<Result<void>> finish() override { return inner_.response.finish(); }
    bool started() const override { return inner_.response.started(); }
    bool finished() const override { return inner_.response.finished(); }
    void abort() override { inner_.response.abort(); }

   private:
    net::Exchange& inner_;
    LogRing& logs_;
  };

  LoggedExchange(net::Exchange& inner, std::unique_ptr<Writer> writer);
  net::Exchange& inner_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace atl::agent
