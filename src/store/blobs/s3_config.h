// Where a bucket is and with which keys: `s3://BUCKET/PREFIX?endpoint=…`.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::blobs {

struct S3Config {
  std::string endpoint;  // "https://s3.example.com", without a path
  std::string region = "us-east-1";
  std::string bucket;
  std::string prefix;       // of all keys, with '/' at its end, or empty
  bool path_style = false;  // endpoint/bucket/key instead of bucket.endpoint/key
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of temporary keys; may be empty

  // Without keys.
  std::string describe() const;
  // URL of the bucket, without '/' at its end.
  std::string base_url() const;
};

// Parameters: endpoint (default: Amazon's of the region), region, path_style (0 or 1; 1 is the
// default for an endpoint that is an address or localhost), credentials (a file as of the AWS
// command line, section "default"). Keys: that file, else AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY [and AWS_SESSION_TOKEN]. invalid_argument.
Result<S3Config> parse_s3(std::string_view url);

}  // namespace atl::blobs
