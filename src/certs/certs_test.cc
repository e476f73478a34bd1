#include "certs/certs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>

namespace atl::certs {
namespace {

using std::chrono::days;
using std::chrono::system_clock;

X509* parse(const std::string& pem) {
  BIO* in = BIO_new_mem_buf(pem.data(), int(pem.size()));
  X509* cert = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
  BIO_free(in);
  return cert;
}

// Verifies as a strict TLS client does; 0 or OpenSSL's error.
int verify(const Pem& leaf, const Ca& ca, const char* host, const char* ip = nullptr) {
  X509* trusted = parse(ca.pem().certificate);
  X509* cert = parse(leaf.certificate);
  X509_STORE* store = X509_STORE_new();
  X509_STORE_add_cert(store, trusted);
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, cert, nullptr);
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (host != nullptr) X509_VERIFY_PARAM_set1_host(param, host, 0);
  if (ip != nullptr) X509_VERIFY_PARAM_set1_ip_asc(param, ip);
  const int result = X509_verify_cert(context) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(context);
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  X509_free(cert);
  X509_free(trusted);
  return result;
}

TEST(Certs, LeafPassesAStrictClient) {
  auto ca = make_ca("Test CA");
  ASSERT_TRUE(ca.ok()) << ca.error().message;
  const std::vector<std::string> names = {"e2b.test", "*.e2b.test", "localhost", "127.0.0.1",
                                          "::1"};
  auto leaf = issue(*ca, names);
  ASSERT_TRUE(leaf.ok()) << leaf.error().message;
  EXPECT_EQ(verify(*leaf, *ca, "e2b.test"), X509_V_OK);
  EXPECT_EQ(verify(*leaf, *ca, "49983-abc.e2b.test"), X509_V_OK);
  EXPECT_EQ(verify(*leaf, *ca, nullptr, "127.0.0.1"), X509_V_OK);
  EXPECT_EQ(verify(*leaf, *ca, nullptr, "::1"), X509_V_OK);
  EXPECT_EQ(verify(*leaf, *ca, "a.b.e2b.test"), X509_V_ERR_HOSTNAME_MISMATCH);
  EXPECT_EQ(verify(*leaf, *ca, "other.test"), X509_V_ERR_HOSTNAME_MISMATCH);
  EXPECT_EQ(verify(*leaf, *ca, nullptr, "127.0.0.2"), X509_V_ERR_IP_ADDRESS_MISMATCH);

  auto other = make_ca("Test CA");
  ASSERT_TRUE(other.ok());
  EXPECT_NE(verify(*leaf, *other, "e2b.test"), X509_V_OK);
  EXPECT_TRUE(signed_by(leaf->certificate, *ca));
  EXPECT_FALSE(signed_by(leaf->certificate, *other));
}

TEST(Certs, LifeIsBounded) {
  auto ca = make_ca("Test CA", days(3650));
  ASSERT_TRUE(ca.ok());
  const std::vector<std::string> names = {"e2b.test"};
  auto leaf = ca->issue(names, days(5000));
  ASSERT_TRUE(leaf.ok());
  auto facts = inspect(leaf->certificate);
  ASSERT_TRUE(facts.ok());
  EXPECT_THAT(facts->names, ::testing::ElementsAre("e2b.test"));
  EXPECT_LE(facts->expires, system_clock::now() + kMaxLeafLife);
  EXPECT_GT(facts->expires, system_clock::now() + days(390));

  auto brief = make_ca("Brief CA", days(2));
  auto short_leaf = brief->issue(names);
  ASSERT_TRUE(short_leaf.ok());
  EXPECT_LE(inspect(short_leaf->certificate)->expires, brief->expires());
}

TEST(Certs, CaSurvivesItsFiles) {
  auto ca = make_ca("Test CA");
  ASSERT_TRUE(ca.ok());
  auto again = Ca::load(ca->pem());
  ASSERT_TRUE(again.ok()) << again.error().message;
  const std::vector<std::string> names = {"x.test"};
  auto leaf = again->issue(names);
  ASSERT_TRUE(leaf.ok());
  EXPECT_EQ(verify(*leaf, *ca, "x.test"), X509_V_OK);

  auto other = make_ca("Other");
  EXPECT_EQ(Ca::load({ca->pem().certificate, other->pem().key}).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(Ca::load({leaf->certificate, leaf->key}).error().code, Errc::invalid_argument);
  EXPECT_EQ(Ca::load({"garbage", "garbage"}).error().code, Errc::invalid_argument);
}

TEST(Certs, HostileNamesAreRefused) {
  auto ca = make_ca("Test CA");
  ASSERT_TRUE(ca.ok());
  for (const std::string& name :
       {std::string(""), std::string("a,DNS:evil.test"), std::string("a\0b", 3), std::string("a b"),
        std::string("a..b"), std::string(".a"), std::string("*"), std::string("a.*.b"),
        std::string("-a.test"), std::string(64, 'a') + ".test", std::string(300, 'a'),
        std::string("x.test."), std::string("b\xc3\xbc.test")}) {
    const std::vector<std::string> names = {name};
    auto leaf = ca->issue(names);
    ASSERT_FALSE(leaf.ok()) << name;
    EXPECT_EQ(leaf.error().code, Errc::invalid_argument);
  }
  EXPECT_FALSE(ca->issue({}).ok());
  std::string longest;
  for (int i = 0; i < 25; ++i) longest += "longlabel.";
  longest += "abc";
  const std::vector<std::string> long_name = {longest};
  auto leaf = ca->issue(long_name);
  ASSERT_TRUE(leaf.ok()) << leaf.error().message;
  EXPECT_EQ(verify(*leaf, *ca, longest.c_str()), X509_V_OK);
}

}  // namespace
}  // namespace atl::certs
