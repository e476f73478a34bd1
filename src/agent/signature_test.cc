#include "agent/signature.h"

#include <gtest/gtest.h>

#include "base/encoding.h"
#include "base/sha256.h"

namespace atl::agent {
namespace {

TEST(Sha256, Vectors) {
  EXPECT_EQ(hex_encode(sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_encode(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_encode(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_encode(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSame) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += char(i * 7);
  for (std::size_t step : {1U, 3U, 55U, 56U, 63U, 64U, 65U, 128U}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += step) hash.update(text.substr(at, step));
    EXPECT_EQ(hash.finish(), sha256(text)) << step;
  }
}

constexpr char kToken[] = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";

TEST(Signature, CheckVector) {
  const SignedRequest request{"hello.txt", FileOperation::read, "user", std::nullopt};
  EXPECT_EQ(sign(request, kToken), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

TEST(Signature, EveryPartCounts) {
  const SignedRequest base{"hello.txt", FileOperation::read, "user", 1000};
  const std::string good = sign(base, kToken);
  SignedRequest other = base;
  other.path = "hello.tx";
  EXPECT_NE(sign(other, kToken), good);
  other = base;
  other.operation = FileOperation::write;
  EXPECT_NE(sign(other, kToken), good);
  other = base;
  other.username = "";
  EXPECT_NE(sign(other, kToken), good);
  other = base;
  other.expiration = std::nullopt;
  EXPECT_NE(sign(other, kToken), good);
  EXPECT_NE(sign(base, "other token"), good);
}

TEST(Signature, Decisions) {
  const SignedRequest request{"hello.txt", FileOperation::read, "", 1000};
  const std::string good = sign(request, kToken);
  const auto message = [&](const std::optional<std::string>& signature, std::int64_t now) {
    const auto checked = check_signature(request, kToken, signature, now);
    if (checked.ok()) return std::string("ok");
    EXPECT_EQ(checked.error().code, Errc::unauthenticated);
    return checked.error().message;
  };
  EXPECT_EQ(message(std::nullopt, 0), "missing signature query parameter");
  EXPECT_EQ(message("v1_nonsense", 0), "invalid signature");
  EXPECT_EQ(message("", 0), "invalid signature");
  EXPECT_EQ(message(good, 999), "ok");
  EXPECT_EQ(message(good, 1000), "ok");
  EXPECT_EQ(message(good, 1001), "signature is already expired");
  // A wrong one that is also expired is wrong first.
  EXPECT_EQ(message("v1_nonsense", 1001), "invalid signature");
}

}  // namespace
}  // namespace atl::agent
