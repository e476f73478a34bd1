// SHA-256 of what goes through, by the TLS library, which is faster than base/sha256.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace atl::workspace {

class Digest {
 public:
  Digest();
  void update(std::string_view bytes);
  std::string finish_hex();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace atl::workspace
