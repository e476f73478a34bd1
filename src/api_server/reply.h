// Reply: the answer to one request of the API.
#pragma once

#include <string>

#include "base/json.h"
#include "net/http.h"

namespace atl::api {

struct Reply {
  int status = 200;
  net::Headers headers = {};
  std::string body = {};
  bool sent = false;  // whoever made it has answered already

  static Reply already_sent() { return Reply{.sent = true}; }
};

Reply json_reply(int status, const json::value& value);
inline Reply no_content() { return Reply{204}; }

}  // namespace atl::api
