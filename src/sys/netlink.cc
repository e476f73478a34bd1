#include "sys/netlink.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace atl::sys {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr int kReceiveBuffer = 1 << 20;
constexpr time_t kAnswerSeconds = 10;

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void pad(std::vector<std::byte>& bytes) { bytes.resize((bytes.size() + 3) & ~std::size_t(3)); }

template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t at = 0) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return out;
}

// The words that the kernel adds to an error, if it does.
std::string extended_message(const nlmsghdr& header, std::span<const std::byte> body) {
  if ((header.nlmsg_flags & NLM_F_ACK_TLVS) == 0) return {};
  std::size_t skip = sizeof(nlmsgerr);
  if ((header.nlmsg_flags & NLM_F_CAPPED) == 0) {
    const auto error = read_at<nlmsgerr>(body);
    skip += error.msg.nlmsg_len - sizeof(nlmsghdr);
  }
  if (skip > body.size()) return {};
  for (const NetlinkAttribute& attribute : read_attributes(body.subspan(skip))) {
    if (attribute.type != NLMSGERR_ATTR_MSG) continue;
    const auto* text = reinterpret_cast<const char*>(attribute.value.data());
    return {text, strnlen(text, attribute.value.size())};
  }
  return {};
}

Error to_error(const nlmsghdr& header, std::span<const std::byte> body, int number) {
  const std::string words = extended_message(header, body);
  return errno_error(words.empty() ? "netlink" : "netlink (" + words + ")", number);
}

}  // namespace

void NetlinkAttributes::add(std::uint16_t type, std::span<const std::byte> value) {
  nlattr header;
  header.nla_len = std::uint16_t(sizeof(header) + value.size());
  header.nla_type = type;
  ATOLL_CHECK(sizeof(header) + value.size() <= UINT16_MAX);
  append(bytes_, std::as_bytes(std::span(&header, 1)));
  append(bytes_, value);
  pad(bytes_);
}

void NetlinkAttributes::add_text(std::uint16_t type, std::string_view text) {
  std::string with_end(text);
  add(type, std::as_bytes(std::span(with_end.c_str(), with_end.size() + 1)));
}
void NetlinkAttributes::add_u8(std::uint16_t type, std::uint8_t value) {
  add(type, std::as_bytes(std::span(&value, 1)));
}
void NetlinkAttributes::add_u32(std::uint16_t type, std::uint32_t value) {
  add(type, std::as_bytes(std::span(&value, 1)));
}
void NetlinkAttributes::add_be32(std::uint16_t type, std::uint32_t value) {
  add_u32(type, htonl(value));
}
void NetlinkAttributes::add_nested(std::uint16_t type, const NetlinkAttributes& inner) {
  add(type | NLA_F_NESTED, inner.bytes());
}
void NetlinkAttributes::add_raw(std::span<const std::byte> bytes) {
  append(bytes_, bytes);
  pad(bytes_);
}

void NetlinkBatch::add(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> fixed,
                       const NetlinkAttributes& attributes) {
  nlmsghdr header{};
  const std::size_t fixed_size = (fixed.size() + 3) & ~std::size_t(3);
  header.nlmsg_len = std::uint32_t(sizeof(header) + fixed_size + attributes.bytes().size());
  header.nlmsg_type = type;
  header.nlmsg_flags = flags | NLM_F_REQUEST;
  append(bytes_, std::as_bytes(std::span(&header, 1)));
  append(bytes_, fixed);
  pad(bytes_);
  append(bytes_, attributes.bytes());
  ++count_;
}

std::vector<NetlinkAttribute> read_attributes(std::span<const std::byte> bytes) {
  std::vector<NetlinkAttribute> out;
  while (bytes.size() >= sizeof(nlattr)) {
    const auto header = read_at<nlattr>(bytes);
    if (header.nla_len < sizeof(nlattr) || header.nla_len > bytes.size()) break;
    out.push_back({std::uint16_t(header.nla_type & NLA_TYPE_MASK),
                   bytes.subspan(sizeof(nlattr), header.nla_len - sizeof(nlattr))});
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return out;
}

Result<NetlinkSocket> NetlinkSocket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd) return errno_error("netlink socket");
  const int on = 1;
  const timeval patience{kAnswerSeconds, 0};
  // Cosmetic, except the last one: a kernel that does not answer must not stop us for good.
  (void)::setsockopt(fd.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
  (void)::setsockopt(fd.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof(kReceiveBuffer));
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0)
    return errno_error("netlink socket");
  return NetlinkSocket(std::move(fd));
}

Result<void> NetlinkSocket::transmit(const NetlinkBatch& batch, std::uint32_t first_sequence) {
  std::vector<std::byte> bytes = batch.bytes_;
  std::uint32_t sequence = first_sequence;
  for (std::size_t at = 0; at < bytes.size();) {
    auto header = read_at<nlmsghdr>(bytes, at);
    header.nlmsg_seq = sequence++;
    std::memcpy(bytes.data() + at, &header, sizeof(header));
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const ssize_t sent = ::sendto(fd_.get(), bytes.data(), bytes.size(), 0,
                                reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel));
  if (sent < 0) return errno_error("netlink send");
  if (std::size_t(sent) != bytes.size()) return make_error(Errc::internal, "netlink: short send");
  return {};
}

Result<void> NetlinkSocket::send(const NetlinkBatch& batch) {
  const std::uint32_t first = sequence_ + 1;
  sequence_ += std::uint32_t(batch.count());
  // The last message that asks for an answer ends the wait; the others only speak up to complain.
  std::uint32_t last = 0;
  std::uint32_t sequence = first;
  for (std::size_t at = 0; at < batch.bytes_.size(); ++sequence) {
    const auto header = read_at<nlmsghdr>(batch.bytes_, at);
    if ((header.nlmsg_flags & NLM_F_ACK) != 0) last = sequence;
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  ATOLL_CHECK(last != 0);
  ATOLL_TRY(transmit(batch, first));

  Result<void> outcome;
  std::vector<std::byte> buffer(kBufferBytes);
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return outcome.ok() ? Result<void>(errno_error("netlink answer")) : outcome;
    std::span<const std::byte> rest(buffer.data(), std::size_t(n));
    while (rest.size() >= sizeof(nlmsghdr)) {
      const auto header = read_at<nlmsghdr>(rest);
      if (header.nlmsg_len < sizeof(nlmsghdr) || header.nlmsg_len > rest.size()) break;
      const auto body = rest.subspan(sizeof(nlmsghdr), header.nlmsg_len - sizeof(nlmsghdr));
      rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
      // Answers to an earlier request that was given up.
      if (std::int32_t(header.nlmsg_seq - first) < 0) continue;
      if (header.nlmsg_type != NLMSG_ERROR || body.size() < sizeof(nlmsgerr)) continue;
      const int number = -read_at<nlmsgerr>(body).error;
      if (number != 0 && outcome.ok()) outcome = to_error(header, body, number);
      if (header.nlmsg_seq == last) return outcome;
    }
  }
}

Result<void> NetlinkSocket::dump(
    const NetlinkBatch& batch,
    const std::function<void(std::uint16_t, std::span<const std::byte>)>& each) {
  const std::uint32_t sequence = ++sequence_;
  ATOLL_TRY(transmit(batch, sequence));
  std::vector<std::byte> buffer(kBufferBytes);
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("netlink dump");
    std::span<const std::byte> rest(buffer.data(), std::size_t(n));
    while (rest.size() >= sizeof(nlmsghdr)) {
      const auto header = read_at<nlmsghdr>(rest);
      if (header.nlmsg_len < sizeof(nlmsghdr) || header.nlmsg_len > rest.size()) break;
      const auto body = rest.subspan(sizeof(nlmsghdr), header.nlmsg_len - sizeof(nlmsghdr));
      rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
      if (header.nlmsg_seq != sequence) continue;
      if (header.nlmsg_type == NLMSG_DONE) return {};
      if (header.nlmsg_type == NLMSG_ERROR && body.size() >= sizeof(nlmsgerr)) {
        const int number = -read_at<nlmsgerr>(body).error;
        if (number == 0) return {};
        return to_error(header, body, number);
      }
      each(header.nlmsg_type, body);
    }
  }
}

}  // namespace atl::sys
