// Result<T>: how every expected failure travels (a syscall, the network, input, a limit).
//
// An Error has a canonical code that callers branch on, the errno if there was one, and a message
// for people. Layers add what they know with `.with("mount the root")`, so a message reads from the
// outside in: "create sandbox i3k…: mount the root: overlay: Permission denied".
//
// The project's namespace is `atl`: `atoll` is a function of the C library (<stdlib.h>) and cannot
// be a namespace.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace atl {

// The canonical RPC set. `src/base/errc.cc` holds the one table to Connect names and HTTP statuses.
enum class Errc : std::uint8_t {
  canceled = 1,
  unknown,
  invalid_argument,
  deadline_exceeded,
  not_found,
  already_exists,
  permission_denied,
  resource_exhausted,
  failed_precondition,
  aborted,
  out_of_range,
  unimplemented,
  internal,
  unavailable,
  data_loss,
  unauthenticated,
};

// "not_found" and so on: Connect's spelling.
std::string_view connect_name(Errc code);
// The HTTP status that a unary Connect error carries.
int http_status(Errc code);
// What a failed syscall most likely means to a caller.
Errc errc_from_errno(int err);

struct [[nodiscard]] Error {
  Errc code = Errc::internal;
  int sys_errno = 0;
  std::string message;

  // Puts context before the message: with("open the layer") -> "open the layer: <message>".
  Error with(std::string_view context) && {
    message = std::string(context) + ": " + message;
    return std::move(*this);
  }
};

inline Error make_error(Errc code, std::string message) {
  return Error{code, 0, std::move(message)};
}
// Call at once after the failing syscall, or pass the saved errno.
Error errno_error(std::string_view what, int err);
Error errno_error(std::string_view what);

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  // NOLINTBEGIN(google-explicit-constructor): `return value;` and `return error;` are the point of
  // the type.
  Result(Error error) : inner_(tl::unexpect, std::move(error)) {}
  template <class U = T, class = std::enable_if_t<std::is_constructible_v<T, U&&> &&
                                                  !std::is_same_v<std::remove_cvref_t<U>, Result> &&
                                                  !std::is_same_v<std::remove_cvref_t<U>, Error>>>
  Result(U&& value) : inner_(std::forward<U>(value)) {}
  // NOLINTEND(google-explicit-constructor)

  bool ok() const { return inner_.has_value(); }
  explicit operator bool() const { return ok(); }
  T& value() & { return *inner_; }
  const T& value() const& { return *inner_; }
  T&& value() && { return std::move(*inner_); }
  T& operator*() & { return *inner_; }
  const T& operator*() const& { return *inner_; }
  T&& operator*() && { return std::move(*inner_); }
  T* operator->() { return &*inner_; }
  const T* operator->() const { return &*inner_; }
  Error& error() & { return inner_.error(); }
  const Error& error() const& { return inner_.error(); }
  Error&& error() && { return std::move(inner_.error()); }

 private:
  tl::expected<T, Error> inner_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error)
      : inner_(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return inner_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const {}
  void operator*() const {}
  Error& error() & { return inner_.error(); }
  const Error& error() const& { return inner_.error(); }
  Error&& error() && { return std::move(inner_.error()); }

 private:
  tl::expected<void, Error> inner_;
};

// A broken invariant of our own: says where, aborts. Never for input.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
#define ATOLL_CHECK(cond)                                        \
  do {                                                           \
    if (!(cond)) ::atl::check_failed(__FILE__, __LINE__, #cond); \
  } while (false)

#define ATOLL_CONCAT_INNER(a, b) a##b
#define ATOLL_CONCAT(a, b) ATOLL_CONCAT_INNER(a, b)

// ATOLL_TRY(expr): returns the error of a Result, or goes on. The CO_ twins are for coroutines.
#define ATOLL_TRY_IMPL(ret, tmp, expr) \
  auto tmp = (expr);                   \
  if (!tmp.ok()) ret std::move(tmp).error()
#define ATOLL_TRY(expr) ATOLL_TRY_IMPL(return, ATOLL_CONCAT(atoll_try_, __COUNTER__), expr)
#define ATOLL_CO_TRY(expr) ATOLL_TRY_IMPL(co_return, ATOLL_CONCAT(atoll_try_, __COUNTER__), expr)
// ATOLL_TRY_ASSIGN(UniqueFd fd, open_it()): declares `fd` from the value.
#define ATOLL_TRY_ASSIGN_IMPL(ret, tmp, decl, ...) \
  auto tmp = (__VA_ARGS__);                        \
  if (!tmp.ok()) ret std::move(tmp).error();       \
  decl = std::move(tmp).value()
#define ATOLL_TRY_ASSIGN(decl, ...) \
  ATOLL_TRY_ASSIGN_IMPL(return, ATOLL_CONCAT(atoll_try_, __COUNTER__), decl, __VA_ARGS__)
#define ATOLL_CO_TRY_ASSIGN(decl, ...) \
  ATOLL_TRY_ASSIGN_IMPL(co_return, ATOLL_CONCAT(atoll_try_, __COUNTER__), decl, __VA_ARGS__)

}  // namespace atl
