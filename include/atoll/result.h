// How failures are told: as values. No function of the library throws, but for what the machine
// itself refuses (no memory, no threads).
//
// The namespace is `atl::sdk`: `atoll` is a function of the C library and cannot name a namespace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "atoll/export.h"

namespace atl::sdk {

// What callers branch on.
enum class Code : std::uint8_t {
  canceled = 1,         // the Client went away, or a callback threw
  unknown,              //
  invalid_argument,     // what was asked for cannot be
  deadline_exceeded,    // it took longer than its limit
  not_found,            // no such sandbox, file, process, template ...
  already_exists,       //
  permission_denied,    //
  resource_exhausted,   // a limit: of sandboxes, of space, of memory
  failed_precondition,  // not in this state: E2B_API_KEY is not set, the sandbox is paused ...
  aborted,              //
  out_of_range,         //
  unimplemented,        // the server cannot do that
  internal,             // something is broken on the other side
  unavailable,          // no server there, or the connection broke
  data_loss,            // the answer broke off or is of another shape
  unauthenticated,      // the key is none of the server's
};

// "not_found" and so on.
ATOLL_API const char* name_of(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;  // for people: what happened, and often what to do
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Precondition of all these: ok().
  T& operator*() & { return *std::get_if<0>(&value_); }
  const T& operator*() const& { return *std::get_if<0>(&value_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&value_)); }
  T* operator->() { return std::get_if<0>(&value_); }
  const T* operator->() const { return std::get_if<0>(&value_); }
  T& value() & { return **this; }
  const T& value() const& { return **this; }
  T&& value() && { return *std::move(*this); }
  // Precondition: !ok().
  const Error& error() const { return *std::get_if<1>(&value_); }

 private:
  std::variant<T, Error> value_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }  // precondition: !ok()

 private:
  std::optional<Error> error_;
};

}  // namespace atl::sdk
