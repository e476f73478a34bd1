// Ids and random tokens. Ids are types, so that one kind cannot be passed for another.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atl {

// Cryptographically random bytes from getrandom(2); aborts if the kernel has none (it never does
// after boot).
std::string random_bytes(std::size_t count);
std::string random_hex(std::size_t bytes);
std::string random_base36(std::size_t characters);
std::string random_uuid4();
// Compares in time that depends on the lengths only.
bool constant_time_equal(std::string_view a, std::string_view b);

// `i` + 20 of [a-z0-9]; it is a DNS label, so nothing else is allowed.
class SandboxId {
 public:
  static SandboxId generate();
  // Accepts any non-empty [a-z0-9]{1,40}: unknown ids must be able to be "not found".
  static std::optional<SandboxId> parse(std::string_view text);

  const std::string& str() const { return value_; }
  auto operator<=>(const SandboxId&) const = default;

 private:
  explicit SandboxId(std::string value) : value_(std::move(value)) {}
  std::string value_;
};

}  // namespace atl

template <>
struct std::hash<atl::SandboxId> {
  std::size_t operator()(const atl::SandboxId& id) const {
    return std::hash<std::string>()(id.str());
  }
};
