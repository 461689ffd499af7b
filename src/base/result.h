// Result<T>: a value or an Error, for everything that comes from outside (files, requests, flags, devices).
// Bugs of our own are LILY_CHECKs (check.h); nothing in this project throws across a module boundary.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace lily {

/// Whose fault an error is, which decides exit codes and HTTP statuses.
enum class ErrorCode {
  kInvalidArgument,  ///< a request, flag or configuration value that cannot be meant
  kNotFound,         ///< a file, tensor, model or route that does not exist
  kCorrupt,          ///< a file whose parts contradict each other
  kUnsupported,      ///< well-formed, but not something this build can do
  kExhausted,        ///< no memory, disk, queue place or context left
  kIo,               ///< the operating system refused
  kCancelled,        ///< the caller went away or asked to stop
  kInternal,         ///< our own failure, caught at a boundary
};

/// What went wrong, in one line: the thing, what was expected, what was found.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  /// The same error with "`where`: " in front, for gathering context on the way up.
  [[nodiscard]] Error in(std::string_view where) && {
    message.insert(0, std::string(where) + ": ");
    return std::move(*this);
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): `return value;` and `return fail(...);` both have to work.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    LILY_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    LILY_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    LILY_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const& { return std::get<1>(state_); }
  [[nodiscard]] Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const& { return error_.value(); }
  [[nodiscard]] Error&& error() && { return std::move(error_).value(); }

 private:
  std::optional<Error> error_;
};

/// Error{code, formatted message}: `return fail(ErrorCode::kCorrupt, "{}: header is {} bytes", path, n);`
template <class... Args>
[[nodiscard]] Error fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

#define LILY_CONCAT_(a, b) a##b
#define LILY_CONCAT(a, b) LILY_CONCAT_(a, b)

/// LILY_TRY(auto x, f()): x gets f()'s value, or the enclosing function returns f()'s error.
#define LILY_TRY(declaration, expression) \
  LILY_TRY_(LILY_CONCAT(lily_result_, __LINE__), declaration, expression)
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses.
#define LILY_TRY_(result, declaration, expression)    \
  auto result = (expression);                         \
  if (!result.ok()) return std::move(result).error(); \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

/// LILY_TRY_VOID(f()): returns f()'s error from the enclosing function, if it has one.
#define LILY_TRY_VOID(expression) \
  if (auto lily_status = (expression); !lily_status.ok()) return std::move(lily_status).error()

}  // namespace lily
