#include "transport/verbs/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace pacecar {
namespace {

using enum CompletionStatus;

constexpr std::string_view kReport =
    "please report it with the versions of the NIC's firmware and of rdma-core";

constexpr auto kStatusTable = std::to_array<StatusInfo>({
    {IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", kLocalError, true,
     "a message was longer than its buffer or than the device allows",
     "a receive request is shorter than the peer's send, or a write is beyond max_msg_sz",
     "post larger receive requests, or set a smaller PACECAR_EXPERT_CHUNK"},
    {IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", kLocalError, false,
     "the NIC found a work request that is inconsistent",
     "a defect in the NIC's driver or in Pacecar", kReport},
    {IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", kLocalError, true,
     "the NIC may not use the local memory of a work request",
     "the memory was deregistered or unmapped before its work request was done, or its key is of "
     "another region",
     "keep memory registered until its requests are done"},
    {IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", kLocalError, false,
     "a work request was given back because its queue pair had failed before",
     "an earlier error of the same queue pair, on either side",
     "look at the first error of this queue pair, and at the peer's log"},
    {IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", kLocalError, false,
     "the peer's NIC answered what cannot be",
     "a defect in a NIC's firmware, or two queue pairs that are joined wrongly",
     "bring the firmware of both NICs up to date"},
    {IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", kLocalError, true,
     "a received message may not be placed into the memory of its receive request",
     "the memory is not registered for writing", "register receive buffers for remote writing"},
    {IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", kRemoteRefused, true,
     "the peer's NIC refused the request as invalid",
     "a send is longer than the peer's receive request, or the peer's queue pair does not allow "
     "the operation",
     "post larger receive requests at the peer, and run the same version of Pacecar on both sides"},
    {IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR", kRemoteAccessError, true,
     "the peer's NIC refused access to its memory",
     "the peer has deregistered the memory, or its bounds or rights do not allow it",
     "keep memory registered at the receiver until the transfer is done"},
    {IBV_WC_REM_OP_ERR, "REM_OP_ERR", kRemoteRefused, true,
     "the peer's NIC could not complete the operation",
     "an error of the peer's own: of its memory, receive queue or device",
     "look at the peer's log"},
    {IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", kRetryExceeded, false,
     "the peer's NIC has not answered within all retries",
     "the peer or the path to it is gone, or packets of this kind are dropped on it",
     "check that the peer lives, that the GIDs of both ends are of one kind and reach each other "
     "(PACECAR_GID_INDEX), that the network carries the MTU, and that PFC or ECN is set for this "
     "traffic class; PACECAR_TIMEOUT allows longer outages"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", kReceiverNotReady, false,
     "the peer had no receive request within all retries",
     "the peer's process hangs, or takes more than it has receive requests for",
     "check that the peer's process runs, and post more receive requests"},
    {IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", kRemoteRefused, false, "the peer aborted the operation",
     "the peer has reset its queue pair", "look at the peer's log"},
    {IBV_WC_FATAL_ERR, "FATAL_ERR", kLocalError, false, "the NIC had a fatal error",
     "the device was reset or removed, or is broken",
     "look at the kernel's log (dmesg), and start the process again"},
    {IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", kRetryExceeded, false,
     "the peer's NIC did not answer in time", "the peer or the path to it is gone",
     "check that the peer lives and that the network carries this traffic"},
    {IBV_WC_GENERAL_ERR, "GENERAL_ERR", kLocalError, false,
     "the NIC reported an error that has no name", "known to the NIC's vendor by the vendor error",
     "look at the kernel's log (dmesg), and bring the NIC's firmware up to date"},
});

constexpr StatusInfo kUnknownStatus{IBV_WC_GENERAL_ERR,
                                    "an unknown status",
                                    kLocalError,
                                    false,
                                    "the NIC reported a status that no request of ours can have",
                                    "a defect in the NIC's driver, or a newer libibverbs",
                                    kReport};

constexpr std::string_view kRights =
    "the system refuses: check the rights of /dev/infiniband/uverbs* and, in a container, that the "
    "devices are passed through";
constexpr std::string_view kUnsupported =
    "the device's driver does not support it: use another device";
constexpr std::string_view kUnreachable =
    "the peer's GID cannot be reached from ours: check addresses, routes and PACECAR_GID_INDEX on "
    "both sides";
constexpr std::string_view kLockedMemory =
    "the memory cannot be locked: raise the limit (ulimit -l unlimited; in a container, "
    "--ulimit memlock=-1; for a service, LimitMEMLOCK=infinity)";

constexpr auto kErrnoTable = std::to_array<ErrnoInfo>({
    {Call::kConnect, ETIMEDOUT, "ETIMEDOUT", ErrorCode::kPeer, kUnreachable},
    {Call::kConnect, EHOSTUNREACH, "EHOSTUNREACH", ErrorCode::kPeer, kUnreachable},
    {Call::kConnect, ENETUNREACH, "ENETUNREACH", ErrorCode::kPeer, kUnreachable},
    {Call::kConnect, ENXIO, "ENXIO", ErrorCode::kPeer, kUnreachable},
    {Call::kConnect, EINVAL, "EINVAL", ErrorCode::kPeer, kUnreachable},
    {Call::kRegister, ENOMEM, "ENOMEM", ErrorCode::kPermission, kLockedMemory},
    {Call::kRegister, EPERM, "EPERM", ErrorCode::kPermission, kLockedMemory},
    {Call::kRegister, EFAULT, "EFAULT", ErrorCode::kInvalidArgument,
     "the range is not mapped, or not writable although peers are to write it: pass valid memory; "
     "for GPU memory, load nvidia_peermem"},
    {Call::kRegister, EINVAL, "EINVAL", ErrorCode::kInvalidArgument,
     "the device cannot register this kind of memory: use memory of the host"},
    {Call::kOther, ENOMEM, "ENOMEM", ErrorCode::kUnavailable,
     "memory or a resource of the device is used up: use fewer flows (PACECAR_MAX_FLOWS), or raise "
     "the locked memory limit (ulimit -l unlimited)"},
    {Call::kOther, EPERM, "EPERM", ErrorCode::kPermission, kRights},
    {Call::kOther, EACCES, "EACCES", ErrorCode::kPermission, kRights},
    {Call::kOther, EMFILE, "EMFILE", ErrorCode::kUnavailable,
     "too many files are open: raise ulimit -n"},
    {Call::kOther, ENODEV, "ENODEV", ErrorCode::kSystem,
     "the device is gone: look at the kernel's log (dmesg)"},
    {Call::kOther, EIO, "EIO", ErrorCode::kSystem,
     "the device is gone or broken: look at the kernel's log (dmesg)"},
    {Call::kOther, ENOSYS, "ENOSYS", ErrorCode::kSystem, kUnsupported},
    {Call::kOther, EOPNOTSUPP, "EOPNOTSUPP", ErrorCode::kSystem, kUnsupported},
    {Call::kOther, EINVAL, "EINVAL", ErrorCode::kSystem,
     "the device or its driver does not take these values: bring driver and firmware up to date"},
});

const ErrnoInfo* find(Call call, int errno_value) {
  const auto found = std::ranges::find_if(kErrnoTable, [&](const ErrnoInfo& info) {
    return info.call == call && info.errno_value == errno_value;
  });
  return found == kErrnoTable.end() ? nullptr : &*found;
}

std::string where(const FaultPlace& place) {
  std::string text = fmt::format("{} port {}", place.device, place.port);
  if (!place.peer.empty()) text += fmt::format(", peer {}", place.peer);
  return text;
}

}  // namespace

std::span<const StatusInfo> status_table() { return kStatusTable; }

std::span<const ErrnoInfo> errno_table() { return kErrnoTable; }

const StatusInfo& status_info(ibv_wc_status status) {
  const auto found = std::ranges::find(kStatusTable, status, &StatusInfo::status);
  return found == kStatusTable.end() ? kUnknownStatus : *found;
}

std::string describe_fault(const FaultPlace& place, ibv_wc_status status, uint32_t vendor_error) {
  const StatusInfo& info = status_info(status);
  return fmt::format("{}: {} ({}, vendor error {:#x}), likely because {}. To cure it, {}.",
                     where(place), info.what, info.name, vendor_error, info.cause, info.cure);
}

std::string describe_fault(const FaultPlace& place, std::string_view what, std::string_view cure) {
  return fmt::format("{}: {}. To cure it, {}.", where(place), what, cure);
}

Error verbs_error(Call kind, std::string_view call, int errno_value, std::string_view device) {
  const std::string failed =
      fmt::format("{}: {} failed ({})", device, call, std::generic_category().message(errno_value));
  const ErrnoInfo* info = find(kind, errno_value);
  if (info == nullptr) info = find(Call::kOther, errno_value);
  if (info == nullptr) return {ErrorCode::kSystem, failed + ": look at the kernel's log (dmesg)"};
  return {info->code, fmt::format("{}: {}", failed, info->text)};
}

}  // namespace pacecar
