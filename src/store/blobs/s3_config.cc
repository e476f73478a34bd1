#include "store/blobs/s3_config.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/encoding.h"
#include "store/blobs/key.h"
#include "sys/files.h"

namespace atl::blobs {
namespace {

Error bad(const std::string& why) {
  return make_error(
      Errc::invalid_argument,
      "--blobs: " + why + ". FIX: s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION");
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

Result<void> read_credentials(S3Config& config, const std::string& path) {
  auto text = sys::read_trusted(path, 64 << 10);
  if (!text.ok()) return std::move(text).error().with("read the credentials of --blobs");
  std::istringstream lines(*text);
  bool mine = true;
  for (std::string line; std::getline(lines, line);) {
    const std::string content = trimmed(line);
    if (content.empty() || content[0] == '#' || content[0] == ';') continue;
    if (content.front() == '[') {
      mine = content == "[default]";
      continue;
    }
    const std::size_t equals = content.find('=');
    if (!mine || equals == std::string::npos) continue;
    const std::string name = trimmed(std::string_view(content).substr(0, equals));
    const std::string value = trimmed(std::string_view(content).substr(equals + 1));
    if (name == "aws_access_key_id") config.access_key = value;
    if (name == "aws_secret_access_key") config.secret_key = value;
    if (name == "aws_session_token") config.session_token = value;
  }
  return {};
}

bool is_bucket(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  return name.size() >= 3 && name.size() <= 63 && std::all_of(name.begin(), name.end(), plain) &&
         name.front() != '.' && name.front() != '-' && name.find("..") == std::string_view::npos;
}

std::string_view host_of(std::string_view endpoint) {
  endpoint.remove_prefix(endpoint.find("://") + 3);
  return endpoint;
}

bool needs_path_style(std::string_view endpoint) {
  std::string_view host = host_of(endpoint);
  if (host.starts_with('[')) return true;
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host.find_first_not_of("0123456789.") == std::string_view::npos;
}

Result<void> set_parameter(S3Config& config, std::string_view name, const std::string& value,
                           std::string& credentials, bool& style_given) {
  if (name == "endpoint") {
    config.endpoint = value;
    while (config.endpoint.ends_with('/')) config.endpoint.pop_back();
    const bool scheme =
        config.endpoint.starts_with("http://") || config.endpoint.starts_with("https://");
    if (!scheme || host_of(config.endpoint).empty() ||
        host_of(config.endpoint).find_first_of("/@?# ") != std::string_view::npos) {
      return bad("the endpoint must be http://HOST[:PORT] or https://HOST[:PORT]");
    }
  } else if (name == "region") {
    if (value.empty() ||
        value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") != std::string::npos)
      return bad("the region is not one");
    config.region = value;
  } else if (name == "path_style") {
    if (value != "0" && value != "1") return bad("path_style is 0 or 1");
    config.path_style = value == "1";
    style_given = true;
  } else if (name == "credentials") {
    credentials = value;
  } else {
    return bad("unknown parameter '" + std::string(name) + "'");
  }
  return {};
}

}  // namespace

std::string S3Config::describe() const {
  return "s3://" + bucket + "/" + prefix + " at " + endpoint + " (" + region + ")";
}

std::string S3Config::base_url() const {
  if (path_style) return endpoint + "/" + bucket;
  const std::size_t host = endpoint.find("://") + 3;
  return endpoint.substr(0, host) + bucket + "." + endpoint.substr(host);
}

Result<S3Config> parse_s3(std::string_view url) {
  S3Config config;
  if (!url.starts_with("s3://")) return bad("not an s3:// URL");
  url.remove_prefix(5);
  std::string_view query;
  if (const std::size_t mark = url.find('?'); mark != std::string_view::npos) {
    query = url.substr(mark + 1);
    url = url.substr(0, mark);
  }
  config.bucket = url.substr(0, url.find('/'));
  if (!is_bucket(config.bucket)) return bad("'" + config.bucket + "' is not the name of a bucket");
  config.prefix = url.substr(std::min(config.bucket.size() + 1, url.size()));
  while (config.prefix.ends_with('/')) config.prefix.pop_back();
  if (!config.prefix.empty()) {
    if (config.prefix.size() > 100 || !check_key(config.prefix).ok())
      return bad("the prefix has at most 100 letters, digits, '.', '_', '-' and '/'");
    config.prefix += '/';
  }
  std::string credentials;
  bool style_given = false;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const auto value = percent_decode(pair.substr(std::min(equals + 1, pair.size())));
    if (!value) return bad("a parameter is not encoded well");
    ATOLL_TRY(set_parameter(config, pair.substr(0, equals), *value, credentials, style_given));
  }
  if (config.endpoint.empty()) config.endpoint = "https://s3." + config.region + ".amazonaws.com";
  if (!style_given) config.path_style = needs_path_style(config.endpoint);
  if (!credentials.empty()) {
    ATOLL_TRY(read_credentials(config, credentials));
  } else {
    config.access_key = environment("AWS_ACCESS_KEY_ID");
    config.secret_key = environment("AWS_SECRET_ACCESS_KEY");
    config.session_token = environment("AWS_SESSION_TOKEN");
  }
  if (config.access_key.empty() || config.secret_key.empty()) {
    return make_error(Errc::invalid_argument,
                      "--blobs: there are no keys for the bucket. FIX: set AWS_ACCESS_KEY_ID and "
                      "AWS_SECRET_ACCESS_KEY, or name a file with credentials=/PATH");
  }
  return config;
}

}  // namespace atl::blobs
