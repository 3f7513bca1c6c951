#include "transport/ofi/errors.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace pacecar {
namespace {

using enum CompletionStatus;

constexpr std::string_view kDead = "the peer's process has ended, or the network between is down";
constexpr std::string_view kLookThere =
    "look for the first error at the peer, and at the links and routes to it";
constexpr std::string_view kRevoked =
    "the peer does not let us write there: its memory was deregistered";
constexpr std::string_view kLookAtPeer = "look for the first error at the peer";
constexpr std::string_view kOtherNic = "use another NIC (PACECAR_NICS)";
constexpr std::string_view kMemory =
    "raise the limits (ulimit -l, ulimit -n), or use fewer flows (PACECAR_MAX_FLOWS)";

constexpr auto kErrors = std::to_array<OfiErrorInfo>({
    {FI_ECONNREFUSED, "FI_ECONNREFUSED", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ECONNRESET, "FI_ECONNRESET", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ECONNABORTED, "FI_ECONNABORTED", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ENOTCONN, "FI_ENOTCONN", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ESHUTDOWN, "FI_ESHUTDOWN", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_EHOSTUNREACH, "FI_EHOSTUNREACH", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_EHOSTDOWN, "FI_EHOSTDOWN", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ENETUNREACH, "FI_ENETUNREACH", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_ETIMEDOUT, "FI_ETIMEDOUT", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {FI_EIO, "FI_EIO", kRetryExceeded, ErrorCode::kPeer, kDead, kLookThere},
    {EOWNERDEAD, "EOWNERDEAD", kRetryExceeded, ErrorCode::kPeer,
     "its process was killed, or one that was writing to it", "look for the first error there"},
    {FI_ECANCELED, "FI_ECANCELED", kLocalError, ErrorCode::kSystem,
     "its endpoint was closed while it was under way", "look for the error before this one"},
    {FI_EACCES, "FI_EACCES", kRemoteAccessError, ErrorCode::kPermission, kRevoked, kLookAtPeer},
    {FI_ENOENT, "FI_ENOENT", kRemoteAccessError, ErrorCode::kPermission, kRevoked, kLookAtPeer},
    {FI_EPERM, "FI_EPERM", kRemoteAccessError, ErrorCode::kPermission,
     "the system or the peer refuses", kLookAtPeer},
    {FI_ENOKEY, "FI_ENOKEY", kRemoteAccessError, ErrorCode::kSystem,
     "the key of the memory is not known", kLookAtPeer},
    {FI_ETRUNC, "FI_ETRUNC", kRemoteAccessError, ErrorCode::kSystem,
     "the memory there is smaller than what was written", kLookAtPeer},
    {FI_EMSGSIZE, "FI_EMSGSIZE", kLocalError, ErrorCode::kSystem,
     "the provider does not take writes of this length", "set a smaller PACECAR_EXPERT_CHUNK"},
    {FI_ENOMEM, "FI_ENOMEM", kLocalError, ErrorCode::kUnavailable,
     "memory, or what may be locked of it, is used up", kMemory},
    {FI_EMFILE, "FI_EMFILE", kLocalError, ErrorCode::kUnavailable, "too many files are open",
     "raise ulimit -n"},
    {FI_ENOSPC, "FI_ENOSPC", kLocalError, ErrorCode::kUnavailable,
     "/dev/shm or a table of the provider is full", "make room in /dev/shm, or raise its size"},
    {FI_EADDRNOTAVAIL, "FI_EADDRNOTAVAIL", kLocalError, ErrorCode::kNotFound,
     "the address is not one of this machine", kOtherNic},
    {FI_ENODEV, "FI_ENODEV", kLocalError, ErrorCode::kSystem, "the device is gone", kOtherNic},
    {FI_ENODATA, "FI_ENODATA", kLocalError, ErrorCode::kNotFound,
     "the provider has nothing of the kind", kOtherNic},
    {FI_ENOSYS, "FI_ENOSYS", kLocalError, ErrorCode::kSystem, "the provider cannot do it",
     kOtherNic},
    {FI_EOPNOTSUPP, "FI_EOPNOTSUPP", kLocalError, ErrorCode::kSystem, "the provider cannot do it",
     kOtherNic},
    {FI_EINVAL, "FI_EINVAL", kLocalError, ErrorCode::kSystem,
     "the provider does not take these values",
     "bring libfabric up to date; for a device with small completion queues, as rdma_rxe's, set "
     "FI_UNIVERSE_SIZE=64"},
});
constexpr OfiErrorInfo kUnknown{0,
                                "unknown",
                                kLocalError,
                                ErrorCode::kSystem,
                                "the provider or its device is in trouble",
                                "set FI_LOG_LEVEL=warn to see its log"};

const OfiErrorInfo* find(int error) {
  const auto found = std::ranges::find(kErrors, error, &OfiErrorInfo::error);
  return found == kErrors.end() ? nullptr : &*found;
}

// "Connection refused (FI_ECONNREFUSED; provider error 111: ...)"
std::string reported(const OfiFailure& failure) {
  const OfiErrorInfo* const info = find(failure.error);
  std::string text = fmt::format(
      "{} ({}", failure.text,
      info == nullptr ? fmt::format("error {}", failure.error) : std::string(info->name));
  if (failure.provider_error != 0) {
    text += fmt::format("; provider error {}", failure.provider_error);
  }
  if (!failure.provider_text.empty() && failure.provider_text != failure.text) {
    text += ": " + failure.provider_text;
  }
  return text + ")";
}

}  // namespace

const OfiErrorInfo& ofi_error_info(const OfiFailure& failure) {
  const OfiErrorInfo* info = find(failure.error);
  if (failure.error == FI_ECANCELED && find(failure.provider_error) != nullptr) {
    info = find(failure.provider_error);
  }
  return info != nullptr ? *info : kUnknown;
}

std::string describe_fault(const OfiPlace& place, const OfiFailure& failure) {
  const OfiErrorInfo& info = ofi_error_info(failure);
  return describe_fault(place, fmt::format("{}, likely because {}", reported(failure), info.cause),
                        info.cure);
}

std::string describe_fault(const OfiPlace& place, std::string_view what, std::string_view cure) {
  const std::string peer = place.peer.empty() ? "" : fmt::format(", peer {}", place.peer);
  return fmt::format("{}{}: {}. To cure it, {}.", place.nic, peer, what, cure);
}

Error ofi_error(std::string_view call, const OfiFailure& failure, std::string_view nic) {
  const OfiErrorInfo& found = ofi_error_info(failure);
  const OfiErrorInfo& info = found.status == kLocalError ? found : kUnknown;
  return {info.code, fmt::format("{}: {} failed: {}, {}: {}", nic, call, reported(failure),
                                 info.cause, info.cure)};
}

}  // namespace pacecar
