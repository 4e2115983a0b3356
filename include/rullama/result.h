// Errors as values: every call that can fail returns Result<T>.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace rullama {

// What kind of thing went wrong, for callers that react to it; people read `message`.
enum class ErrorCode : std::uint8_t {
  invalid,        // the input (file, argument, text) is wrong
  not_found,      // a file, model or device does not exist
  unsupported,    // well formed, but nothing this engine (or this device) can do
  out_of_memory,  // host or device memory, or a device limit
  io,             // reading or writing failed
  device,         // the GPU reported an error or was lost
  cancelled,      // the caller asked to stop
};

struct Error {
  std::string message;  // one sentence: the thing (file, key, tensor, limit) and the way out
  ErrorCode code = ErrorCode::invalid;
};

template <class T = void>
using Result = std::expected<T, Error>;

// `return fail("...")` or `return fail(ErrorCode::io, "...")` from any function that returns a Result.
[[nodiscard]] inline std::unexpected<Error> fail(std::string message) {
  return std::unexpected(Error{std::move(message), ErrorCode::invalid});
}
[[nodiscard]] inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{std::move(message), code});
}

// `if (!r) return failed(r);` hands an error on to a caller with another value type.
template <class T>
[[nodiscard]] std::unexpected<Error> failed(Result<T>& result) {
  return std::unexpected(std::move(result.error()));
}
template <class T>
[[nodiscard]] std::unexpected<Error> failed(Result<T>&& result) {
  return std::unexpected(std::move(result.error()));
}

}  // namespace rullama
