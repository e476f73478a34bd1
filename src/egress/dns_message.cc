#include "egress/dns_message.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace atl::egress::dns {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMaxNameWire = 255;
constexpr int kMaxPointers = 64;
constexpr std::size_t kMaxChain = 16;

constexpr std::uint16_t kFlagResponse = 0x8000;
constexpr std::uint16_t kFlagTruncated = 0x0200;
constexpr std::uint16_t kFlagRecursionDesired = 0x0100;
constexpr std::uint16_t kFlagRecursionAvailable = 0x0080;
constexpr std::uint16_t kFlagAuthentic = 0x0020;
constexpr std::uint16_t kFlagCheckingDisabled = 0x0010;
constexpr std::uint32_t kEdnsDnssecOk = 0x8000;

Error malformed(const char* what) {
  return make_error(Errc::out_of_range, std::string("malformed DNS message: ") + what);
}

struct Name {
  std::string text;
  std::string wire;
};

// Reads forward over one message; never past its end.
class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}

  std::size_t at() const { return at_; }
  bool at_end() const { return at_ == message_.size(); }

  Result<std::uint16_t> u16() {
    if (message_.size() - at_ < 2) return malformed("it ends early");
    const auto value = std::uint16_t(byte(at_) << 8 | byte(at_ + 1));
    at_ += 2;
    return value;
  }
  Result<std::uint32_t> u32() {
    ATOLL_TRY_ASSIGN(const std::uint32_t high, u16());
    ATOLL_TRY_ASSIGN(const std::uint32_t low, u16());
    return high << 16 | low;
  }
  Result<std::string_view> bytes(std::size_t count) {
    if (message_.size() - at_ < count) return malformed("it ends early");
    const std::string_view out = message_.substr(at_, count);
    at_ += count;
    return out;
  }

  // A pointer must lead to before the place where the name (or the last jump) began: then no walk
  // can go round.
  Result<Name> name() {
    Name out;
    std::size_t at = at_;
    std::size_t lowest = at_;
    bool jumped = false;
    for (int pointers = 0;;) {
      if (at >= message_.size()) return malformed("a name ends early");
      const unsigned length = byte(at);
      if ((length & 0xc0) == 0xc0) {
        if (at + 1 >= message_.size()) return malformed("a name ends early");
        const std::size_t target = (length & 0x3f) << 8 | byte(at + 1);
        if (!jumped) at_ = at + 2;
        jumped = true;
        if (target < kHeader || target >= lowest || ++pointers > kMaxPointers)
          return malformed("a name points forward");
        at = lowest = target;
        continue;
      }
      if ((length & 0xc0) != 0) return malformed("unknown kind of label");
      if (message_.size() - at - 1 < length) return malformed("a name ends early");
      if (out.wire.size() + 1 + length > kMaxNameWire) return malformed("a name is too long");
      out.wire.append(message_.substr(at, 1 + length));
      if (length == 0) {
        if (!jumped) at_ = at + 1;
        return out;
      }
      if (!out.text.empty()) out.text += '.';
      append_label(out.text, message_.substr(at + 1, length));
      at += 1 + length;
    }
  }

 private:
  unsigned byte(std::size_t at) const { return static_cast<unsigned char>(message_[at]); }

  static void append_label(std::string& text, std::string_view label) {
    for (const char c : label) {
      if (c >= 'A' && c <= 'Z') {
        text += char(c - 'A' + 'a');
      } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_') {
        text += c;
      } else {
        const unsigned value = static_cast<unsigned char>(c);
        text += '\\';
        text += char('0' + value / 100);
        text += char('0' + value / 10 % 10);
        text += char('0' + value % 10);
      }
    }
  }

  std::string_view message_;
  std::size_t at_ = 0;
};

void put16(std::string& out, std::uint32_t value) {
  out += char(value >> 8 & 0xff);
  out += char(value & 0xff);
}
void put32(std::string& out, std::uint32_t value) {
  put16(out, value >> 16);
  put16(out, value & 0xffff);
}

struct Header {
  std::uint16_t id = 0, flags = 0, questions = 0, answers = 0, authorities = 0, additionals = 0;
};

Result<Header> read_header(Reader& reader) {
  Header header;
  for (std::uint16_t* field : {&header.id, &header.flags, &header.questions, &header.answers,
                               &header.authorities, &header.additionals}) {
    ATOLL_TRY_ASSIGN(*field, reader.u16());
  }
  return header;
}

Result<Question> read_question(Reader& reader) {
  Question question;
  ATOLL_TRY_ASSIGN(Name name, reader.name());
  question.name = std::move(name.text);
  question.wire = std::move(name.wire);
  ATOLL_TRY_ASSIGN(question.type, reader.u16());
  ATOLL_TRY_ASSIGN(question.klass, reader.u16());
  return question;
}

struct RawRecord {
  Name name;
  std::uint16_t type = 0, klass = 0;
  std::uint32_t ttl = 0;
  std::size_t data_at = 0;
  std::string_view data;
};

Result<RawRecord> read_record(Reader& reader) {
  RawRecord record;
  ATOLL_TRY_ASSIGN(record.name, reader.name());
  ATOLL_TRY_ASSIGN(record.type, reader.u16());
  ATOLL_TRY_ASSIGN(record.klass, reader.u16());
  ATOLL_TRY_ASSIGN(record.ttl, reader.u32());
  ATOLL_TRY_ASSIGN(const std::uint16_t length, reader.u16());
  record.data_at = reader.at();
  ATOLL_TRY_ASSIGN(record.data, reader.bytes(length));
  return record;
}

// A name inside a record must end where the record ends.
Result<Name> name_in(std::string_view message, const RawRecord& record) {
  Reader reader(message.substr(0, record.data_at + record.data.size()));
  ATOLL_TRY(reader.bytes(record.data_at));
  ATOLL_TRY_ASSIGN(Name name, reader.name());
  if (!reader.at_end()) return malformed("bytes after a name");
  return name;
}

Result<Record> decode(std::string_view message, const RawRecord& raw) {
  Record record;
  record.name = raw.name.text;
  record.name_wire = raw.name.wire;
  record.type = raw.type;
  // RFC 2181: a TTL with the top bit set is zero.
  record.ttl = raw.ttl > 0x7fffffff ? 0 : raw.ttl;
  if (raw.klass != kClassIn) {
    record.type = 0;
  } else if (raw.type == type::a) {
    if (raw.data.size() != 4) return malformed("an address of the wrong size");
    for (const char c : raw.data)
      record.address.value = record.address.value << 8 | static_cast<unsigned char>(c);
  } else if (raw.type == type::cname) {
    ATOLL_TRY_ASSIGN(Name target, name_in(message, raw));
    record.target = std::move(target.text);
    record.target_wire = std::move(target.wire);
  }
  return record;
}

std::uint16_t reply_flags(const Query& query, Rcode rcode) {
  unsigned flags = kFlagResponse | kFlagRecursionAvailable | unsigned(query.opcode) << 11;
  if (query.recursion_desired) flags |= kFlagRecursionDesired;
  if (query.checking_disabled) flags |= kFlagCheckingDisabled;
  return std::uint16_t(flags | unsigned(rcode));
}

void put_header(std::string& out, std::uint16_t id, std::uint16_t flags, std::uint16_t answers,
                bool edns) {
  put16(out, id);
  put16(out, flags);
  put16(out, 1);
  put16(out, answers);
  put16(out, 0);
  put16(out, edns ? 1 : 0);
}

void put_question(std::string& out, const Question& question) {
  out += question.wire;
  put16(out, question.type);
  put16(out, question.klass);
}

void put_opt(std::string& out, bool dnssec_ok) {
  out += '\0';
  put16(out, type::opt);
  put16(out, kOurUdp);
  put32(out, dnssec_ok ? kEdnsDnssecOk : 0);
  put16(out, 0);
}

std::string begin_reply(const Query& query, std::uint16_t flags, std::uint16_t answers) {
  std::string out;
  put_header(out, query.id, flags, answers, query.edns);
  put_question(out, query.question);
  return out;
}

}  // namespace

Result<Query> parse_query(std::string_view message) {
  if (message.size() < kHeader || message.size() > kMaxMessage)
    return make_error(Errc::invalid_argument, "no DNS message");
  Reader reader(message);
  ATOLL_TRY_ASSIGN(const Header header, read_header(reader));
  if ((header.flags & kFlagResponse) != 0)
    return make_error(Errc::invalid_argument, "an answer where a query belongs");
  Query query;
  query.id = header.id;
  query.opcode = header.flags >> 11 & 0xf;
  query.recursion_desired = (header.flags & kFlagRecursionDesired) != 0;
  query.checking_disabled = (header.flags & kFlagCheckingDisabled) != 0;
  if (header.questions != 1 || header.answers != 0 || header.authorities != 0)
    return malformed("it is not one question");
  if (header.additionals > 2) return malformed("too many additional records");
  ATOLL_TRY_ASSIGN(query.question, read_question(reader));
  for (int i = 0; i < header.additionals; ++i) {
    ATOLL_TRY_ASSIGN(const RawRecord record, read_record(reader));
    if (record.type != type::opt) continue;
    if (query.edns) return malformed("two EDNS records");
    if (!record.name.text.empty()) return malformed("an EDNS record with a name");
    query.edns = true;
    query.dnssec_ok = (record.ttl & kEdnsDnssecOk) != 0;
    query.udp_size = std::uint16_t(std::clamp<std::size_t>(record.klass, kPlainUdp, kOurUdp));
  }
  if (!reader.at_end()) return malformed("bytes after its end");
  return query;
}

std::string reply_to_malformed(std::string_view message) {
  if (message.size() < kHeader) return {};
  Reader reader(message);
  const auto header = read_header(reader);
  if (!header.ok() || (header->flags & kFlagResponse) != 0) return {};
  std::string out;
  put16(out, header->id);
  put16(out, kFlagResponse | (header->flags & 0x7900) | unsigned(Rcode::format_error));
  out.append(8, '\0');
  return out;
}

Result<Answer> parse_answer(std::string_view message) {
  if (message.size() > kMaxMessage) return malformed("it is too long");
  Reader reader(message);
  ATOLL_TRY_ASSIGN(const Header header, read_header(reader));
  if ((header.flags & kFlagResponse) == 0) return malformed("it is a query");
  if ((header.flags >> 11 & 0xf) != 0) return malformed("it answers no query");
  if (header.questions != 1) return malformed("it is not the answer to one question");
  Answer answer;
  answer.id = header.id;
  answer.truncated = (header.flags & kFlagTruncated) != 0;
  answer.authentic = (header.flags & kFlagAuthentic) != 0;
  const unsigned rcode = header.flags & 0xf;
  answer.rcode = rcode <= unsigned(Rcode::refused) ? Rcode(rcode) : Rcode::server_failure;
  ATOLL_TRY_ASSIGN(answer.question, read_question(reader));
  answer.answers_end = reader.at();
  // What a truncated answer still holds may end anywhere; nobody uses it.
  if (answer.truncated) return answer;
  answer.answer_count = header.answers;
  for (int i = 0; i < header.answers; ++i) {
    ATOLL_TRY_ASSIGN(const RawRecord raw, read_record(reader));
    ATOLL_TRY_ASSIGN(Record record, decode(message, raw));
    answer.records.push_back(std::move(record));
  }
  answer.answers_end = reader.at();
  return answer;
}

std::string encode_query(const Question& question, std::uint16_t id, bool dnssec_ok,
                         bool checking_disabled) {
  std::string out;
  const unsigned flags = kFlagRecursionDesired | (checking_disabled ? kFlagCheckingDisabled : 0);
  put_header(out, id, std::uint16_t(flags), 0, true);
  put_question(out, question);
  put_opt(out, dnssec_ok);
  return out;
}

std::string encode_empty(const Query& query, Rcode rcode) {
  std::string out = begin_reply(query, reply_flags(query, rcode), 0);
  if (query.edns) put_opt(out, query.dnssec_ok);
  return out;
}

std::string encode_truncated(const Query& query) {
  const auto flags = std::uint16_t(reply_flags(query, Rcode::no_error) | kFlagTruncated);
  std::string out = begin_reply(query, flags, 0);
  if (query.edns) put_opt(out, query.dnssec_ok);
  return out;
}

std::string encode_records(const Query& query, Rcode rcode, const std::vector<Record>& records) {
  std::string out = begin_reply(query, reply_flags(query, rcode), std::uint16_t(records.size()));
  std::unordered_map<std::string, std::size_t> known;  // whole names that were written already
  known.emplace(query.question.wire, kHeader);
  const auto put_name = [&](const std::string& wire) {
    const auto found = known.find(wire);
    if (found != known.end()) return put16(out, 0xc000 | std::uint32_t(found->second));
    if (out.size() < 0x3fff) known.emplace(wire, out.size());
    out += wire;
  };
  for (const Record& record : records) {
    put_name(record.name_wire);
    put16(out, record.type);
    put16(out, kClassIn);
    put32(out, record.ttl);
    const std::size_t length_at = out.size();
    put16(out, 4);
    if (record.type == type::a) {
      put32(out, record.address.value);
    } else {
      put_name(record.target_wire);
      const std::size_t length = out.size() - length_at - 2;
      out[length_at] = char(length >> 8);
      out[length_at + 1] = char(length & 0xff);
    }
  }
  if (query.edns) put_opt(out, query.dnssec_ok);
  return out;
}

// Compression pointers go backwards only, so the message stays whole when its tail is cut off. The
// question's bytes stay the upstream's: pointers may lead into them.
std::string encode_relayed(const Query& query, std::string_view message, const Answer& answer) {
  std::string out;
  unsigned flags = reply_flags(query, answer.rcode);
  if (answer.authentic) flags |= kFlagAuthentic;
  put_header(out, query.id, std::uint16_t(flags), answer.answer_count, query.edns);
  out += message.substr(kHeader, answer.answers_end - kHeader);
  if (query.edns) put_opt(out, query.dnssec_ok);
  return out;
}

std::optional<std::string> encode_name(std::string_view name) {
  std::string wire;
  if (name.ends_with('.')) name.remove_suffix(1);
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    if (dot == 0 || dot > 63) return std::nullopt;
    wire += char(dot);
    wire += name.substr(0, dot);
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  wire += '\0';
  if (wire.size() > kMaxNameWire || wire.size() < 2) return std::nullopt;
  return wire;
}

Chain follow(const Answer& answer, std::string_view name) {
  Chain chain;
  chain.ttl = 0x7fffffff;
  std::string at(name);
  for (std::size_t step = 0; step < kMaxChain; ++step) {
    const auto next = std::find_if(
        answer.records.begin(), answer.records.end(),
        [&](const Record& record) { return record.type == type::cname && record.name == at; });
    if (next == answer.records.end()) break;
    chain.records.push_back(*next);
    chain.ttl = std::min(chain.ttl, next->ttl);
    at = next->target;
  }
  for (const Record& record : answer.records) {
    if (record.type != type::a || record.name != at) continue;
    chain.records.push_back(record);
    chain.addresses.push_back(record.address);
    chain.ttl = std::min(chain.ttl, record.ttl);
  }
  if (chain.records.empty()) chain.ttl = 0;
  return chain;
}

}  // namespace atl::egress::dns
