#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>
#include <span>

#include "base/encoding.h"
#include "snapshot/embed.h"
#include "snapshot/snapshot.h"
#include "snapshot/tree.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/self.h"

namespace atl::snapshot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMaxLine = 4096;

Result<std::string> new_token() {
  char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != ssize_t(sizeof(bytes)))
    return errno_error("getrandom");
  return hex_encode({bytes, sizeof(bytes)});
}

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

Result<SelfTest> run(const std::string& prefix, const sys::UniqueFd& scratch) {
  SelfTest result;
  ATOLL_TRY_ASSIGN(Tools tools, find_tools(prefix));
  result.version = tools.version;
  ATOLL_TRY(sys::adopt_orphans());
  const std::string name = fmt::format("self-test-{}", ::getpid());
  ATOLL_TRY_ASSIGN(std::string token, new_token());
  const std::uint32_t number = std::uint32_t(::getpid()) % 64 * 2;  // others may test at once
  {
    ATOLL_TRY_ASSIGN(Tree tree, Tree::make(name, number));
    ATOLL_TRY(tree.start(helper_program(), {token}));
    ATOLL_TRY(tree.freeze());
    const auto begin = Clock::now();
    auto dumped = checkpoint(tree.dump_plan(tools, scratch));
    if (!dumped) return std::move(dumped).error().with("dump");
    result.dump = since(begin);
  }
  ATOLL_TRY_ASSIGN(Tree tree, Tree::make(name + "-restored", number + 1));
  ATOLL_TRY_ASSIGN(RestorePlan plan, tree.restore_plan(tools, scratch, helper_program()));
  const auto begin = Clock::now();
  auto restored = restore(std::move(plan));
  if (!restored) return std::move(restored).error().with("restore");
  result.restore = since(begin);
  ATOLL_TRY(tree.adopt(restored->init));
  auto answer = tree.ask();
  if (!answer) return std::move(answer).error().with("ask the restored tree");
  if (*answer != token + " " + token)
    return make_error(Errc::data_loss, "the restored tree has forgotten");
  return result;
}

// "ok VERSION DUMP RESTORE" or "error CODE MESSAGE".
std::string to_line(const Result<SelfTest>& result) {
  if (!result) return fmt::format("error {} {}", int(result.error().code), result.error().message);
  return fmt::format("ok {} {} {}", result->version, result->dump.count(), result->restore.count());
}

Result<SelfTest> from_line(std::string_view line) {
  const auto word = [&line] {
    const std::string_view text = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), text.size() + 1));
    return text;
  };
  const auto number = [&word] {
    std::int64_t value = 0;
    const std::string_view text = word();
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const std::string_view outcome = word();
  if (outcome == "error") {
    const auto code = Errc(number());
    return make_error(code, std::string(line));
  }
  if (outcome != "ok") return make_error(Errc::internal, "the self-test ended without an answer");
  SelfTest result;
  result.version = word();
  result.dump = std::chrono::microseconds(number());
  result.restore = std::chrono::microseconds(number());
  return result;
}

}  // namespace

// In a process of its own, for the mount namespaces it makes.
Result<SelfTest> self_test(const std::string& prefix, const sys::UniqueFd& scratch) {
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(0, nullptr));
  if (cloned.pid == 0) {
    ends.first.reset();
    std::string line = to_line(run(prefix, scratch));
    line.resize(std::min(line.size(), kMaxLine));
    (void)sys::send_datagram(ends.second, std::as_bytes(std::span(line)), {}, sys::Wait::yes);
    sys::exit_now(0);
  }
  ends.second.reset();
  sys::Child child(cloned.pid, std::move(cloned.pidfd));
  auto message = sys::receive_datagram(ends.first, kMaxLine, 0, sys::Wait::yes);
  ATOLL_TRY(child.wait(kPatience));
  for (const char* name : {"images", "manifest.json"}) {
    ATOLL_TRY(sys::remove_tree(scratch, name));
  }
  if (!message) return std::move(message).error();
  return from_line({reinterpret_cast<const char*>(message->bytes.data()), message->bytes.size()});
}

}  // namespace atl::snapshot
