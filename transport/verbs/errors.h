// Texts for errors that libibverbs reports: what happened, its likely cause, and the cure.
// ERRORS.md shows the tables. Pure. Thread rule: any.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/nic/nic.h"

namespace pacecar {

struct StatusInfo {
  ibv_wc_status status;
  std::string_view name;
  CompletionStatus completion;
  // The work request itself is wrong (key, bounds or length). The connection fails in any case.
  bool request_at_fault;
  std::string_view what;
  std::string_view cause;
  std::string_view cure;
};

// One row for each ibv_wc_status that a request of ours may have, but success.
std::span<const StatusInfo> status_table();
// Also for numbers that this version of libibverbs does not have.
const StatusInfo& status_info(ibv_wc_status status);

// Where the fault occurred, for the error text.
struct FaultPlace {
  std::string_view device;
  uint32_t port = 0;
  std::string_view peer;  // its GID; empty: not connected
};

// Device, port, peer, status, vendor error, cause and cure, in two sentences.
std::string describe_fault(const FaultPlace& place, ibv_wc_status status, uint32_t vendor_error);
std::string describe_fault(const FaultPlace& place, std::string_view what, std::string_view cure);

// The kind of call of libibverbs: the same errno has different causes after different calls.
enum class Call : uint8_t { kRegister, kConnect, kOther };

struct ErrnoInfo {
  Call call;  // kOther: any call
  int errno_value;
  std::string_view name;
  ErrorCode code;
  std::string_view text;  // cause and cure
};

std::span<const ErrnoInfo> errno_table();

// `call` is the function's name, such as ibv_reg_mr.
Error verbs_error(Call kind, std::string_view call, int errno_value, std::string_view device);
inline tl::unexpected<Error> verbs_failed(std::string_view call, int errno_value,
                                          std::string_view device, Call kind = Call::kOther) {
  return tl::unexpected(verbs_error(kind, call, errno_value, device));
}

}  // namespace pacecar
