#include "cli/cert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "certs/certs.h"
#include "cli/home.h"

namespace atl::cli {
namespace {

class CertTest : public ::testing::Test {
 protected:
  CertTest() {
    char name[] = "/tmp/atoll-cert-test-XXXXXX";
    home_ = ::mkdtemp(name);
    std::filesystem::create_directory(home_ + "/keys");
  }
  ~CertTest() override { std::filesystem::remove_all(home_); }

  Result<CertFiles> ensure(const std::string& domain, bool renew = false) {
    CertOptions options;
    options.home = home_;
    options.domain = domain;
    options.renew = renew;
    return ensure_cert(options);
  }

  std::string home_;
};

TEST_F(CertTest, OneCaForAllDomainsAndGoodCertificatesAreKept) {
  auto first = ensure("Sand.Test");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->certificate, home_ + "/keys/sand.test.pem");
  const std::string ca = *read_file(first->ca);
  const std::string certificate = *read_file(first->certificate);
  EXPECT_THAT(certs::inspect(certificate)->names,
              ::testing::ElementsAre("sand.test", "*.sand.test", "localhost", "127.0.0.1", "::1"));
  struct stat info{};
  ASSERT_EQ(::stat(first->key.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  ASSERT_TRUE(ensure("sand.test").ok());
  EXPECT_EQ(*read_file(first->certificate), certificate);
  ASSERT_TRUE(ensure("other.test").ok());
  EXPECT_EQ(*read_file(first->ca), ca);
  ASSERT_TRUE(ensure("sand.test", true).ok());
  EXPECT_NE(*read_file(first->certificate), certificate);
}

TEST_F(CertTest, ACertificateOfAnotherCaIsReplaced) {
  auto files = ensure("sand.test");
  ASSERT_TRUE(files.ok());
  const std::string before = *read_file(files->certificate);
  std::filesystem::remove(files->ca);
  EXPECT_EQ(ensure("sand.test").error().code, Errc::failed_precondition) << "a key without its CA";
  std::filesystem::remove(home_ + "/keys/ca.key");
  ASSERT_TRUE(ensure("sand.test").ok());
  EXPECT_NE(*read_file(files->certificate), before);
}

TEST_F(CertTest, NamesOfOtherFilesAreRefused) {
  for (const char* domain : {"", "ca", "default", "../evil", "a..b", ".a.b", "a.b.", "a/b.c",
                             "-a.b", "a b.c", "*.a.b"}) {
    auto files = ensure(domain);
    ASSERT_FALSE(files.ok()) << domain;
    EXPECT_EQ(files.error().code, Errc::invalid_argument) << domain;
  }
  EXPECT_TRUE(std::filesystem::is_empty(home_ + "/keys"));
  EXPECT_TRUE(ensure("localhost").ok());
}

}  // namespace
}  // namespace atl::cli
