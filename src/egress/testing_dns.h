// For tests: writes DNS messages byte by byte, and a server over UDP and TCP that answers with
// them.
#pragma once

#include <string>
#include <utility>

#include "egress/dns_message.h"
#include "egress/testing.h"

namespace atl::egress::testing {

inline std::string u16(unsigned value) { return {char(value >> 8 & 0xff), char(value & 0xff)}; }
inline std::string u32(std::uint32_t value) { return u16(value >> 16) + u16(value & 0xffff); }
inline std::string labels(std::string_view name) { return *dns::encode_name(name); }

inline std::string header(unsigned id, unsigned flags, unsigned questions, unsigned answers,
                          unsigned authorities = 0, unsigned additionals = 0) {
  return u16(id) + u16(flags) + u16(questions) + u16(answers) + u16(authorities) + u16(additionals);
}
inline std::string question(std::string_view name, unsigned type, unsigned klass = 1) {
  return labels(name) + u16(type) + u16(klass);
}
inline std::string query(unsigned id, std::string_view name, unsigned type = dns::type::a) {
  return header(id, 0x0100, 1, 0) + question(name, type);
}
inline std::string opt(unsigned size, std::uint32_t flags = 0) {
  return std::string(1, '\0') + u16(41) + u16(size) + u32(flags) + u16(0);
}
inline std::string edns_query(unsigned id, std::string_view name, unsigned type, unsigned size) {
  return header(id, 0x0100, 1, 0, 0, 1) + question(name, type) + opt(size);
}
inline std::string record(const std::string& name_wire, unsigned type, unsigned ttl,
                          const std::string& data) {
  return name_wire + u16(type) + u16(1) + u32(ttl) + u16(unsigned(data.size())) + data;
}
inline std::string a_record(std::string_view name, std::string_view ip, unsigned ttl = 60) {
  return record(labels(name), dns::type::a, ttl, u32(Ipv4::parse(ip)->value));
}
inline std::string cname_record(std::string_view name, std::string_view target, unsigned ttl = 60) {
  return record(labels(name), dns::type::cname, ttl, labels(target));
}

class DnsServer {
 public:
  // The whole answer to a query, empty for none. `tcp` tells how it came.
  using Answer = std::function<std::string(const dns::Query& query, bool tcp)>;

  explicit DnsServer(Answer answer)
      : answer_(std::move(answer)),
        tcp_([this](int fd) { talk_tcp(fd); }),
        udp_(bound(SOCK_DGRAM, "127.0.0.1", tcp_.port())),
        thread_([this] { run(); }) {}
  ~DnsServer() {
    stop_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return tcp_.port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  int asked() const { return asked_; }

  // An answer with the query's id and question and these records.
  static std::string with(const dns::Query& query, const std::vector<std::string>& records,
                          unsigned rcode = 0) {
    std::string out = header(query.id, 0x8180 | rcode, 1, unsigned(records.size()));
    out += query.question.wire + u16(query.question.type) + u16(query.question.klass);
    for (const std::string& one : records) out += one;
    return out;
  }

 private:
  void run() {
    while (!stop_) {
      pollfd state{udp_.get(), POLLIN, 0};
      if (::poll(&state, 1, 20) <= 0) continue;
      std::string buffer(4096, '\0');
      sockaddr_in from{};
      socklen_t length = sizeof from;
      const ssize_t n = ::recvfrom(udp_.get(), buffer.data(), buffer.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &length);
      if (n <= 0) continue;
      auto query = dns::parse_query(std::string_view(buffer).substr(0, std::size_t(n)));
      if (!query.ok()) continue;
      ++asked_;
      const std::string reply = answer_(*query, false);
      if (!reply.empty())
        (void)::sendto(udp_.get(), reply.data(), reply.size(), 0,
                       reinterpret_cast<sockaddr*>(&from), length);
    }
  }
  void talk_tcp(int fd) {
    const std::string bytes = receive(fd);
    if (bytes.size() < 2) return;
    auto query = dns::parse_query(std::string_view(bytes).substr(2));
    if (!query.ok()) return;
    ++asked_;
    const std::string reply = answer_(*query, true);
    if (!reply.empty()) send_all(fd, u16(unsigned(reply.size())) + reply);
  }

  Answer answer_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> asked_ = 0;
  TcpServer tcp_;
  sys::UniqueFd udp_;
  std::thread thread_;
};

}  // namespace atl::egress::testing
