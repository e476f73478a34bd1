// DNS messages as a sandbox or an upstream server could send them. What is parsed and written again
// must parse again and say the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/dns.h"

namespace atl::egress {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void as_query(std::string_view message) {
  const auto query = dns::parse_query(message);
  if (!query.ok()) {
    const std::string reply = dns::reply_to_malformed(message);
    require(reply.empty() || reply.size() == 12);
    return;
  }
  for (const Policy& policy : {Policy{}, Policy{.deny = {Cidr4{Ipv4{0}, 0}}}}) {
    const auto local = answer_locally(*query, policy, "own.test");
    if (!local) continue;
    if (query->opcode != 0) continue;
    const auto answer = dns::parse_answer(*local);
    require(answer.ok());
    require(answer->id == query->id && answer->question.name == query->question.name);
  }
  const std::string forwarded =
      dns::encode_query(query->question, 7, query->dnssec_ok, query->checking_disabled);
  const auto again = dns::parse_query(forwarded);
  require(again.ok() && again->question.name == query->question.name);
  require(dns::encode_truncated(*query).size() <= dns::kPlainUdp);
}

void as_answer(std::string_view message) {
  const auto answer = dns::parse_answer(message);
  if (!answer.ok()) return;
  require(answer->answers_end <= message.size());
  const dns::Chain chain = dns::follow(*answer, answer->question.name);
  dns::Query query;
  query.question = answer->question;
  query.edns = true;
  const auto again = dns::parse_answer(dns::encode_records(query, answer->rcode, chain.records));
  require(again.ok());
  require(dns::follow(*again, answer->question.name).addresses == chain.addresses);
  if (answer->truncated) return;
  const auto relayed = dns::parse_answer(dns::encode_relayed(query, message, *answer));
  require(relayed.ok() && relayed->records.size() == answer->records.size());
}

}  // namespace
}  // namespace atl::egress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view message(reinterpret_cast<const char*>(data), size);
  atl::egress::as_query(message);
  atl::egress::as_answer(message);
  return 0;
}
