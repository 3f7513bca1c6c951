// Errors of the control path. The data path uses enums and counters instead.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace pacecar {

enum class ErrorCode {
  kInvalidArgument,  // the caller's mistake: a bad flag, size, handle, parameter
  kNotFound,         // a device, interface or address that is not there
  kUnavailable,      // a bounded resource is used up; try again later or raise the bound
  kPermission,       // the operating system refuses
  kSystem,           // an operating-system call failed
  kPeer,             // the other side is gone, silent, or uses another protocol
  kStale,            // the offered flow has ended meanwhile; another attempt may succeed
  kInternal,         // misuse of an internal interface
};

// `message` is one sentence: what happened, and the cure.
struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace pacecar
