// Cross-origin requests: browsers talk to the agent from any page; the token is what protects it
// (wire/sandbox-agent.md §2).
#pragma once

#include "net/http.h"

namespace atl::agent {

// An OPTIONS request that asks what is allowed; it carries no token.
bool is_preflight(const net::RequestHead& request);
net::Task<void> answer_preflight(net::Exchange& exchange);

// The exchange as handlers see it, with the headers that let a page read the answer. Wraps `inner`,
// which outlives it.
class CorsExchange final : public net::Exchange {
 public:
  explicit CorsExchange(net::Exchange& inner);
  std::string take_over() override { return inner_.take_over(); }

 private:
  class Writer final : public net::ResponseWriter {
   public:
    explicit Writer(net::ResponseWriter& inner) : inner_(inner) {}
    net::Task<Result<void>> send(int status, net::Headers headers, std::string body) override;
    net::Task<Result<void>> start(int status, net::Headers headers,
                                  std::optional<std::uint64_t> length) override;
    net::Task<Result<void>> write(std::string_view bytes) override { return inner_.write(bytes); }
    net::Task<Result<void>> finish() override { return inner_.finish(); }
    bool started() const override { return inner_.started(); }
    bool finished() const override { return inner_.finished(); }
    void abort() override { inner_.abort(); }

   private:
    net::ResponseWriter& inner_;
  };

  CorsExchange(net::Exchange& inner, std::unique_ptr<Writer> writer);
  net::Exchange& inner_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace atl::agent
