// Limits of the process and of the kernel.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

// A communicator registers NCCL's buffers, some megabytes for each channel and peer.
constexpr uint64_t kLeastMemlock = 64ULL << 20;
constexpr uint64_t kEnoughFiles = 4096;  // 1,024 connections, with room for the application

void check_memlock(const Facts& facts, Findings& findings) {
  const Process& process = facts.process;
  if (!process.memlock_bytes) return;
  if (facts.rdma.empty()) {
    findings.add(FindingId::kLimitsMemlock, "locked memory", "no RDMA device needs it");
  } else if (process.may_lock_memory) {
    findings.add(FindingId::kLimitsMemlock, "locked memory",
                 "CAP_IPC_LOCK: the limit does not apply");
  } else if (*process.memlock_bytes == UINT64_MAX) {
    findings.add(FindingId::kLimitsMemlock, "locked memory", "unlimited");
  } else {
    const bool low = *process.memlock_bytes < kLeastMemlock;
    findings.add(low ? FindingId::kLimitsMemlockLow : FindingId::kLimitsMemlockFinite,
                 "locked memory",
                 fmt::format("{} KiB, and no CAP_IPC_LOCK: raise it for good in "
                             "/etc/security/limits.d, or with LimitMEMLOCK= of the service",
                             *process.memlock_bytes >> 10));
  }
}

void check_files(const Process& process, Findings& findings) {
  if (!process.open_files) return;
  const bool enough = *process.open_files >= kEnoughFiles;
  const std::string text = *process.open_files == UINT64_MAX
                               ? "unlimited"
                               : fmt::format("at most {}", *process.open_files);
  findings.add(enough ? FindingId::kLimitsFiles : FindingId::kLimitsFilesLow, "open files",
               enough ? text : fmt::format("{}: large jobs need {}", text, kEnoughFiles));
}

void check_socket_buffers(const Facts& facts, Findings& findings) {
  const Bytes wanted = facts.settings.socket_buffer;
  const auto receive = facts.software.receive_buffer_max;
  const auto send = facts.software.send_buffer_max;
  if (!receive && !send) return;
  if (facts.process.may_force_buffers) {
    findings.add(FindingId::kLimitsSocketBuffers, "socket buffers",
                 "CAP_NET_ADMIN: the kernel's bounds do not apply");
    return;
  }
  const std::string bytes = std::to_string(wanted);
  if (receive && *receive < wanted) {
    findings.add(FindingId::kLimitsReceiveBufferLow, "net.core.rmem_max",
                 fmt::format("{} bytes, and soft:udp asks for {}", *receive, wanted),
                 {{"BYTES", bytes}});
  }
  if (send && *send < wanted) {
    findings.add(FindingId::kLimitsSendBufferLow, "net.core.wmem_max",
                 fmt::format("{} bytes, and soft:udp asks for {}", *send, wanted),
                 {{"BYTES", bytes}});
  }
  if (receive.value_or(wanted) >= wanted && send.value_or(wanted) >= wanted) {
    findings.add(FindingId::kLimitsSocketBuffers, "socket buffers",
                 fmt::format("the kernel allows the {} bytes that soft:udp asks for", wanted));
  }
}

}  // namespace

void check_limits(const Facts& facts, Findings& findings) {
  check_memlock(facts, findings);
  check_files(facts.process, findings);
  check_socket_buffers(facts, findings);
  if (facts.process.cpu_quota && *facts.process.cpu_quota < 1) {
    findings.add(FindingId::kLimitsCpuQuota, "CPU quota",
                 fmt::format("{:.2f} of a CPU: the engine is stopped again and again",
                             *facts.process.cpu_quota),
                 {{"FILE", facts.process.cpu_quota_file}});
  }
}

}  // namespace pacecar::preflight
