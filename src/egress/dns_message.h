// DNS messages (RFC 1035, 6891) as far as a forwarding resolver needs them. Every byte is hostile:
// queries come from sandboxes, answers from wherever those names lead. Parsing is bounded by the
// message, compression pointers only go backwards, names are at most 255 bytes on the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ipv4.h"
#include "base/result.h"

namespace atl::egress::dns {

inline constexpr std::size_t kMaxMessage = 65535;
inline constexpr std::size_t kPlainUdp = 512;   // what a client without EDNS takes
inline constexpr std::uint16_t kOurUdp = 1232;  // what we take and send at most over UDP

inline constexpr std::uint16_t kClassIn = 1;

enum class Rcode : std::uint8_t {
  no_error = 0,
  format_error = 1,
  server_failure = 2,
  name_error = 3,
  not_implemented = 4,
  refused = 5,
};

namespace type {
inline constexpr std::uint16_t a = 1, cname = 5, ptr = 12, aaaa = 28, dname = 39, opt = 41,
                               svcb = 64, https = 65, ixfr = 251, axfr = 252, any = 255;
}

struct Question {
  // Lower case, without the last dot; "" is the root. Bytes other than letters, digits, '-' and '_'
  // are written \DDD, so that such a name never equals one of a policy.
  std::string name;
  std::string wire;  // as asked, uncompressed: what an answer echoes
  std::uint16_t type = 0;
  std::uint16_t klass = 0;
};

struct Query {
  std::uint16_t id = 0;
  std::uint8_t opcode = 0;
  bool recursion_desired = false;
  bool checking_disabled = false;
  bool edns = false;
  bool dnssec_ok = false;
  std::uint16_t udp_size = kPlainUdp;
  Question question;
};

struct Record {
  std::string name;        // as Question::name
  std::uint16_t type = 0;  // 0: of another class than IN
  std::uint32_t ttl = 0;
  Ipv4 address;        // type a
  std::string target;  // type cname: the name
  std::string target_wire;
  std::string name_wire;
};

struct Answer {
  std::uint16_t id = 0;
  Rcode rcode = Rcode::server_failure;
  bool truncated = false;
  bool authentic = false;  // AD
  Question question;
  std::vector<Record> records;  // of the answer section, all types
  std::size_t answers_end = 0;  // where the answer section ends in the message
  std::uint16_t answer_count = 0;
};

// A query of one question. invalid_argument: not worth an answer (no header, or an answer itself);
// out_of_range: malformed, but `reply_to_malformed` knows what to say.
Result<Query> parse_query(std::string_view message);
// FORMERR for what parse_query could not read but has an id; empty: nothing to answer.
std::string reply_to_malformed(std::string_view message);
Result<Answer> parse_answer(std::string_view message);

// The question as it goes to an upstream server.
std::string encode_query(const Question& question, std::uint16_t id, bool dnssec_ok,
                         bool checking_disabled);
// An answer without records.
std::string encode_empty(const Query& query, Rcode rcode);
// An answer of CNAME and A records only.
std::string encode_records(const Query& query, Rcode rcode, const std::vector<Record>& records);
// An upstream's answer section, with the client's id and EDNS; authority and additional records are
// cut off.
std::string encode_relayed(const Query& query, std::string_view message, const Answer& answer);
// The same answer, empty and with TC set: the client asks again over TCP.
std::string encode_truncated(const Query& query);

// "example.com" as labels; nullopt if it is no host name.
std::optional<std::string> encode_name(std::string_view name);

// The addresses that an answer gives for `name`, through its CNAME chain; the records of the chain
// and the addresses in order. `ttl` is the least of them.
struct Chain {
  std::vector<Record> records;
  std::vector<Ipv4> addresses;
  std::uint32_t ttl = 0;
};
Chain follow(const Answer& answer, std::string_view name);

}  // namespace atl::egress::dns
