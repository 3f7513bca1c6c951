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
    findings.add("limits.memlock", "locked memory", "no RDMA device needs it");
  } else if (process.may_lock_memory) {
    findings.add("limits.memlock", "locked memory", "CAP_IPC_LOCK: the limit does not apply");
  } else if (*process.memlock_bytes == UINT64_MAX) {
    findings.add("limits.memlock", "locked memory", "unlimited");
  } else {
    const bool low = *process.memlock_bytes < kLeastMemlock;
    findings.add(low ? FindingId("limits.memlock_low") : FindingId("limits.memlock_finite"),
                 "locked memory",
                 "{} KiB, and no CAP_IPC_LOCK: raise it for good in /etc/security/limits.d, or "
                 "with LimitMEMLOCK= of the service",
                 *process.memlock_bytes >> 10);
  }
}

void check_files(const Process& process, Findings& findings) {
  if (!process.open_files) return;
  const std::string text = *process.open_files == UINT64_MAX
                               ? "unlimited"
                               : fmt::format("at most {}", *process.open_files);
  if (*process.open_files >= kEnoughFiles) {
    findings.add("limits.files", "open files", "{}", text);
  } else {
    findings.add("limits.files_low", "open files", "{}: large jobs need {}", text, kEnoughFiles);
  }
}

void check_socket_buffers(const Facts& facts, Findings& findings) {
  const Bytes wanted = facts.settings.socket_buffer;
  const auto receive = facts.software.receive_buffer_max;
  const auto send = facts.software.send_buffer_max;
  if (!receive && !send) return;
  if (facts.process.may_force_buffers) {
    findings.add("limits.socket_buffers", "socket buffers",
                 "CAP_NET_ADMIN: the kernel's bounds do not apply");
    return;
  }
  const auto is_low = [&](FindingId id, const char* name, std::optional<uint64_t> bytes) {
    if (bytes.value_or(wanted) >= wanted) return false;
    findings.add(id, {name, {{"BYTES", std::to_string(wanted)}}},
                 "{} bytes, and soft:udp asks for {}", *bytes, wanted);
    return true;
  };
  const bool receive_low = is_low("limits.receive_buffer_low", "net.core.rmem_max", receive);
  const bool send_low = is_low("limits.send_buffer_low", "net.core.wmem_max", send);
  if (!receive_low && !send_low) {
    findings.add("limits.socket_buffers", "socket buffers",
                 "the kernel allows the {} bytes that soft:udp asks for", wanted);
  }
}

}  // namespace

void check_limits(const Facts& facts, Findings& findings) {
  check_memlock(facts, findings);
  check_files(facts.process, findings);
  check_socket_buffers(facts, findings);
  if (facts.process.cpu_quota && *facts.process.cpu_quota < 1) {
    findings.add("limits.cpu_quota", {"CPU quota", {{"FILE", facts.process.cpu_quota_file}}},
                 "{:.2f} of a CPU: the engine is stopped again and again",
                 *facts.process.cpu_quota);
  }
}

}  // namespace pacecar::preflight
