#include "runtime/jail/protocol.h"

#include <gtest/gtest.h>

#include <cstring>

namespace atl::jail::wire {
namespace {

CreateRequest good() {
  CreateRequest request;
  request.header.op = std::uint16_t(Op::create);
  request.header.sequence = 7;
  to_field(request.id, "i0123456789");
  to_field(request.template_id, "base");
  to_field(request.hostname, "e2b");
  to_field(request.boot_id, "01234567-89ab-4cde-8f01-23456789abcd");
  request.memory_bytes = 512ull << 20;
  request.disk_bytes = 1ull << 30;
  request.cpu_millis = 2000;
  request.pids = 100;
  return request;
}

template <class T>
Errc code_of(const T& message) {
  auto parsed = parse_request(bytes_of(message));
  return parsed ? Errc{} : parsed.error().code;
}

TEST(Protocol, GoodPlanComesOutAsItWentIn) {
  auto parsed = parse_request(bytes_of(good()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto* request = std::get_if<CreateRequest>(&*parsed);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(request->header.sequence, 7u);
  EXPECT_EQ(from_field(request->id), "i0123456789");
  EXPECT_EQ(request->pids, 100u);
}

TEST(Protocol, PrepareAndWarmNameTemplatesAndSandboxesByIdOnly) {
  TemplateRequest prepare;
  prepare.header.op = std::uint16_t(Op::prepare);
  to_field(prepare.template_id, "code-interpreter-v1");
  auto parsed = parse_request(bytes_of(prepare));
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(std::holds_alternative<TemplateRequest>(*parsed));
  for (const char* bad : {"", "../base", "a/b", "Base"}) {
    to_field(prepare.template_id, bad);
    EXPECT_EQ(code_of(prepare), Errc::invalid_argument) << bad;
  }
  to_field(prepare.template_id, "base");
  prepare.reserved[3] = 1;
  EXPECT_EQ(code_of(prepare), Errc::invalid_argument);
  IdRequest warm;
  warm.header.op = std::uint16_t(Op::warm);
  to_field(warm.id, "i0123");
  EXPECT_EQ(code_of(warm), Errc{});
  to_field(warm.id, "i/123");
  EXPECT_EQ(code_of(warm), Errc::invalid_argument);
}

TEST(Protocol, MemoryGoesWithItsDisk) {
  const char* snapshot = "s0123456789abcdefghij";
  struct Case {
    int kept, memory;
    const char* snapshot;
    Errc expected;
  };
  for (const Case& c :
       {Case{0, 0, "", Errc{}}, Case{0, 0, snapshot, Errc{}}, Case{1, 0, snapshot, Errc{}},
        Case{1, 1, "", Errc{}}, Case{0, 2, snapshot, Errc{}},
        Case{0, 1, "", Errc::invalid_argument}, Case{0, 2, "", Errc::invalid_argument},
        Case{1, 2, snapshot, Errc::invalid_argument}, Case{1, 3, snapshot, Errc::invalid_argument},
        Case{0, 2, "../../etc/0123456789a", Errc::invalid_argument},
        Case{0, 2, "s0123456789abcdefghi", Errc::invalid_argument},
        Case{0, 2, "x0123456789abcdefghij", Errc::invalid_argument},
        Case{0, 2, "s0123456789abcdefghi/", Errc::invalid_argument}}) {
    CreateRequest request = good();
    request.kept_disk = std::uint8_t(c.kept);
    request.memory = std::uint8_t(c.memory);
    to_field(request.snapshot, c.snapshot);
    EXPECT_EQ(code_of(request), c.expected) << c.kept << c.memory << c.snapshot;
  }
  CreateRequest request = good();
  request.replace = 1;
  EXPECT_EQ(code_of(request), Errc::invalid_argument) << "nothing to replace it with";
  to_field(request.snapshot, snapshot);
  EXPECT_EQ(code_of(request), Errc{});
  request.kept_disk = 1;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request = good();
  to_field(request.snapshot, snapshot);
  request.replace = 2;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
}

TEST(Protocol, DumpsAndSnapshotsAreNamedByIdOnly) {
  for (Op op : {Op::dump, Op::cancel_dump}) {
    IdRequest request;
    request.header.op = std::uint16_t(op);
    to_field(request.id, "i0123");
    EXPECT_EQ(code_of(request), Errc{});
    to_field(request.id, "../i0123");
    EXPECT_EQ(code_of(request), Errc::invalid_argument);
  }
  SnapshotRequest take;
  take.header.op = std::uint16_t(Op::snapshot);
  to_field(take.id, "i0123");
  EXPECT_EQ(code_of(take), Errc::invalid_argument);  // no snapshot is named
  to_field(take.snapshot, "s0123456789abcdefghij");
  EXPECT_EQ(code_of(take), Errc{});
  take.disk_only = 1;
  EXPECT_EQ(code_of(take), Errc{});
  take.disk_only = 2;
  EXPECT_EQ(code_of(take), Errc::invalid_argument);
  SnapshotIdRequest remove;
  remove.header.op = std::uint16_t(Op::remove_snapshot);
  to_field(remove.snapshot, "s0123456789abcdefghij");
  EXPECT_EQ(code_of(remove), Errc{});
  to_field(remove.snapshot, "s0123456789abcdefg..");
  EXPECT_EQ(code_of(remove), Errc::invalid_argument);
  ListRequest list;
  list.header.op = std::uint16_t(Op::list_snapshots);
  EXPECT_EQ(code_of(list), Errc{});
  PlainRequest support;
  support.header.op = std::uint16_t(Op::memory_support);
  EXPECT_EQ(code_of(support), Errc{});
}

TEST(Protocol, BytesThatAreNoMessage) {
  CreateRequest request = good();
  const auto bytes = bytes_of(request);
  EXPECT_EQ(parse_request(bytes.first(0)).error().code, Errc::internal);
  EXPECT_EQ(parse_request(bytes.first(sizeof(Header) - 1)).error().code, Errc::internal);
  EXPECT_EQ(parse_request(bytes.first(bytes.size() - 1)).error().code, Errc::internal);
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back(std::byte{0});
  EXPECT_EQ(parse_request(longer).error().code, Errc::internal);
  request.header.magic ^= 1;
  EXPECT_EQ(code_of(request), Errc::internal);
  request = good();
  request.header.version = kVersion + 1;
  EXPECT_EQ(code_of(request), Errc::internal);
  request = good();
  for (int op : {0, int(Op::exited), 40, 65535}) {
    request.header.op = std::uint16_t(op);
    EXPECT_EQ(code_of(request), Errc::internal) << op;
  }
}

TEST(Protocol, IdsAreNamesNotPaths) {
  for (const char* id : {"", ".", "..", "a/b", "../x", "A", "a b", "a\nb", "\xc3\xa4", "a.img"}) {
    CreateRequest request = good();
    to_field(request.id, id);
    EXPECT_EQ(code_of(request), Errc::invalid_argument) << id;
    request = good();
    to_field(request.template_id, id);
    EXPECT_EQ(code_of(request), Errc::invalid_argument) << id;
    IdRequest other;
    other.header.op = std::uint16_t(Op::destroy);
    to_field(other.id, id);
    EXPECT_EQ(code_of(other), Errc::invalid_argument) << id;
  }
  CreateRequest longest = good();
  to_field(longest.id, std::string(64, 'a'));
  EXPECT_EQ(code_of(longest), Errc{});
}

TEST(Protocol, StringsEndAndHideNothing) {
  CreateRequest request = good();
  std::memset(request.id, 'a', sizeof(request.id));
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request = good();
  request.id[40] = 'x';  // behind the NUL
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request = good();
  request.kept_disk = 2;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
}

TEST(Protocol, HostnamesAndBootIds) {
  for (const char* name : {"", "-a", "a-", "a.b", "a b", "a\nb", "a\"b"}) {
    CreateRequest request = good();
    to_field(request.hostname, name);
    EXPECT_EQ(code_of(request), Errc::invalid_argument) << name;
  }
  for (const char* id :
       {"", "01234567-89ab-4cde-8f01-23456789abc", "01234567-89AB-4cde-8f01-23456789abcd",
        "0123456789ab-4cde-8f01-23456789abcd0", "g1234567-89ab-4cde-8f01-23456789abcd"}) {
    CreateRequest request = good();
    to_field(request.boot_id, id);
    EXPECT_EQ(code_of(request), Errc::invalid_argument) << id;
  }
}

TEST(Protocol, LimitsHaveBounds) {
  const auto refused = [](auto change) {
    CreateRequest request = good();
    change(request);
    EXPECT_EQ(code_of(request), Errc::invalid_argument);
  };
  refused([](auto& r) { r.memory_bytes = 0; });
  refused([](auto& r) { r.memory_bytes = kMinMemory - 1; });
  refused([](auto& r) { r.memory_bytes = ~0ull; });
  refused([](auto& r) { r.disk_bytes = kMinDisk - kDiskUnit; });
  refused([](auto& r) { r.disk_bytes = kMinDisk + 1; });
  refused([](auto& r) { r.disk_bytes = ~0ull; });
  refused([](auto& r) { r.cpu_millis = 0; });
  refused([](auto& r) { r.cpu_millis = ~0u; });
  refused([](auto& r) { r.pids = 0; });
  refused([](auto& r) { r.pids = kMaxPids + 1; });
}

TEST(Protocol, NetworkPolicyComesOutAsItWentIn) {
  runtime::NetworkPolicy policy;
  policy.allow = {*Cidr4::parse("1.1.1.1"), *Cidr4::parse("203.0.113.0/24")};
  policy.deny = {*Cidr4::parse("0.0.0.0/0")};
  policy.intercept = runtime::Intercept::web;
  auto fields = to_fields(policy);
  ASSERT_TRUE(fields.ok());
  CreateRequest request = good();
  request.network = *fields;
  EXPECT_EQ(code_of(request), Errc{});
  EXPECT_EQ(to_policy(request.network), policy);

  SetNetworkRequest change;
  change.header.op = std::uint16_t(Op::set_network);
  to_field(change.id, "abc");
  change.network = *fields;
  EXPECT_EQ(code_of(change), Errc{});
  to_field(change.id, "a/b");
  EXPECT_EQ(code_of(change), Errc::invalid_argument);

  policy.deny.assign(runtime::kMaxNetworkEntries + 1, Cidr4{});
  EXPECT_EQ(to_fields(policy).error().code, Errc::invalid_argument);
}

TEST(Protocol, MemoryLimitsHaveBounds) {
  SetMemoryRequest request;
  request.header.op = std::uint16_t(Op::set_memory);
  to_field(request.id, "abc");
  request.memory_bytes = 256 << 20;
  EXPECT_EQ(code_of(request), Errc{});
  request.memory_bytes = kMinMemory - 1;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request.memory_bytes = kMaxMemory + 1;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request.memory_bytes = kMinMemory;
  request.reserved[0] = 1;
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
  request.reserved[0] = 0;
  to_field(request.id, "../abc");
  EXPECT_EQ(code_of(request), Errc::invalid_argument);
}

TEST(Protocol, NetworkPoliciesAreListsOfBlocks) {
  const auto refused = [](auto change) {
    CreateRequest request = good();
    request.network.allow_count = 1;
    request.network.allow[0] = {0x01010100, 24};
    ASSERT_EQ(code_of(request), Errc{});
    change(request.network);
    EXPECT_EQ(code_of(request), Errc::invalid_argument);
  };
  refused([](auto& n) { n.allow_count = runtime::kMaxNetworkEntries + 1; });
  refused([](auto& n) { n.deny_count = ~0u; });
  refused([](auto& n) { n.allow[0].bits = 33; });
  refused([](auto& n) { n.allow[0].bits = 255; });
  refused([](auto& n) { n.allow[0].bits = 0; });
  refused([](auto& n) { n.allow[0].network |= 1; });
  refused([](auto& n) { n.allow[0].reserved[2] = 1; });
  refused([](auto& n) { n.allow[1].network = 1; });
  refused([](auto& n) { n.deny[199].bits = 1; });
  refused([](auto& n) { n.intercept = 3; });
  refused([](auto& n) { n.reserved[0] = 1; });
}

TEST(Protocol, ListAndHello) {
  ListRequest list;
  list.header.op = std::uint16_t(Op::list);
  EXPECT_EQ(code_of(list), Errc{});
  to_field(list.after, "abc");
  EXPECT_EQ(code_of(list), Errc{});
  to_field(list.after, "a/b");
  EXPECT_EQ(code_of(list), Errc::invalid_argument);
  HelloRequest hello;
  hello.header.op = std::uint16_t(Op::hello);
  EXPECT_EQ(code_of(hello), Errc{});
  hello.reserved = 1;
  EXPECT_EQ(code_of(hello), Errc::invalid_argument);
}

TEST(Protocol, FieldsFitOrAreRefused) {
  char field[4];
  EXPECT_TRUE(to_field(field, "abc"));
  EXPECT_EQ(from_field(field), "abc");
  EXPECT_FALSE(to_field(field, "abcd"));
  to_field_cut(field, "abcdef");
  EXPECT_EQ(from_field(field), "abc");
}

}  // namespace
}  // namespace atl::jail::wire
