// What libfabric reports, as sentences: what happened, its likely cause, and the cure.
//
// Pure. Thread rule: any.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/nic/nic.h"

namespace pacecar {

// Who had the trouble, for people.
struct OfiPlace {
  std::string_view nic;   // "ofi:tcp:eth0"
  std::string_view peer;  // its address; empty: not connected
};

// What an operation failed with.
struct OfiFailure {
  int error = 0;              // FI_E..., positive
  int provider_error = 0;     // in the provider's own numbers; 0: none
  std::string provider_text;  // what it says of that; may be empty
  std::string text;           // fi_strerror(error)
};

struct OfiErrorInfo {
  int error;
  std::string_view name;
  CompletionStatus status;  // of the operation, and of its queue pair
  ErrorCode code;
  std::string_view cause;
  std::string_view cure;
};

// Also for numbers that are not in the table. What was merely given back (FI_ECANCELED) counts as
// what the provider says of it, where that is a number that we know.
const OfiErrorInfo& ofi_error_info(const OfiFailure& failure);

// An operation of a queue pair: NIC, peer, what the provider says, cause and cure.
std::string describe_fault(const OfiPlace& place, const OfiFailure& failure);
// `call` is the function's name, such as fi_endpoint.
Error ofi_error(std::string_view call, const OfiFailure& failure, std::string_view nic);

}  // namespace pacecar
