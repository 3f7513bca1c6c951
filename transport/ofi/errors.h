// What libfabric reports as text: what happened, why, and the cure. Pure. Thread rule: any.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/nic/nic.h"

namespace pacecar {

// Where a fault occurred, for the error text.
struct OfiPlace {
  std::string_view nic;   // "ofi:tcp:eth0"
  std::string_view peer;  // its address; empty: not connected
};

// The error of a failed operation.
struct OfiFailure {
  int error = 0;              // FI_E..., positive
  int provider_error = 0;     // the provider's own number; 0: none
  std::string provider_text;  // the provider's text for that; may be empty
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

// For any number. For a cancelled operation (FI_ECANCELED), the provider's error if it is known.
const OfiErrorInfo& ofi_error_info(const OfiFailure& failure);

// A failed operation of a queue pair: NIC, peer, the provider's text, cause and cure.
std::string describe_fault(const OfiPlace& place, const OfiFailure& failure);
std::string describe_fault(const OfiPlace& place, std::string_view what, std::string_view cure);
// `call` is the function's name, such as fi_endpoint, which concerns no peer.
Error ofi_error(std::string_view call, const OfiFailure& failure, std::string_view nic);

}  // namespace pacecar
