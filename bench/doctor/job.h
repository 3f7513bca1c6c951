// A job's processes: their NICs and flows, joined by the NICs' identities. Rates in bit/s, times in
// seconds. Pure values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/metrics/metric_table.h"
#include "transport/state/processor_time.h"

namespace pacecar::doctor {

// A process's profiler records of one communicator (net_plugin/profiler/README.md), read as
// untrusted data. Times in nanoseconds of that process's own clock; sizes in bytes.
enum class ProfiledKind : uint8_t {
  kNone,
  kCollective,
  kPointToPoint,
  kProxyOp,
  kProxyStep,
};

struct ProfiledEvent {
  uint64_t id = 0;
  ProfiledKind kind = ProfiledKind::kNone;
  std::string operation;  // of a collective: "AllReduce"
  uint64_t datatype = 0;
  bool sending = false;
  int64_t peer = -1;    // rank
  uint64_t number = 0;  // of a collective: among those of its operation
  uint64_t amount = 0;
  uint64_t parent = 0;
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;    // 0: it has not ended
  uint64_t moment_ns = 0;  // when a step's data was posted to, or came from, the network
  uint64_t first_ns = 0;   // of an operation: the time until its first message was ready
  bool detailed = true;    // of an operation: its messages were recorded
};

struct Profile {
  std::string communicator;
  int64_t rank = -1;
  uint64_t since_ns = 0;  // when the first sample was taken; 0: there is one only
  uint64_t now_ns = 0;
  std::vector<ProfiledEvent> operations;  // the oldest first; collectives and their parts
  std::vector<ProfiledEvent> steps;
};

struct Flow {
  bool sending = false;
  std::string number;         // the sender's
  std::string peer;           // its address
  std::string peer_identity;  // of the NIC there
  std::string state;
  std::string fault;
  uint64_t requests = 0;  // pending
  double still_s = 0;     // since they last made progress
  bool awaits_peer = false;
  double grant_bps = 0;
  // Sending:
  std::string limited_by;        // most of the time; one look only: at that moment
  std::vector<uint64_t> limits;  // as kEveryLimit: how often each was found, since the flow began
  double rate_bps = 0;
  double core_bps = 0;
  double budget_bps = 0;
  double rtt_s = 0;
  uint64_t path_mtu_bytes = 0;  // of the largest packets that pass; 0: all do
  uint64_t unacknowledged_writes = 0;
  uint64_t backlog_bytes = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t sent_bytes = 0;  // repetitions included
  uint64_t acknowledged_bytes = 0;
  // Between two samples, or since the flow began if there was only one:
  std::optional<double> goodput_bps;  // two samples only
  uint64_t repeated_bytes = 0;
  uint64_t tried_bytes = 0;  // repetitions included
};

// A process that divides the NIC's link with others of its host.
struct Sharer {
  std::string program;
  uint64_t pid = 0;
  double out_demand_bps = 0;
  double out_part_bps = 0;
  double in_demand_bps = 0;
  double in_part_bps = 0;
};

struct Nic {
  std::string name;
  std::string identity;
  double line_rate_bps = 0;
  std::vector<Flow> flows;
  std::vector<Sharer> sharers = {};
  metrics::NicFigures figures = {};
  bool link_down = false;  // as the kernel reports it; false also if unknown
};

struct Process {
  std::string host;
  std::string program;
  uint64_t pid = 0;
  bool has_twin = false;  // another one of this host and pid, in another pid namespace
  std::optional<uint64_t> rank;
  double uptime_s = 0;
  ProcessorTime processor = {};  // until the newer sample
  // Between two samples, in processors: how many its threads had, and how many they waited for.
  double running = 0;
  double starved = 0;
  std::vector<Nic> nics;
  std::vector<Profile> profiles = {};  // one per communicator; empty: nothing is recorded
};

// A process that has a socket and does not answer.
struct SilentProcess {
  std::string host;
  uint64_t pid = 0;
  std::string reason;
};

// "rank 3 (node2, pid 812)", "perf_server (node2, pid 812)"; with a twin "train (node2, pid 1 of
// 3fa2c1)": so begins the identity of its first NIC.
inline std::string name_of(const Process& process) {
  const std::string who = process.rank ? fmt::format("rank {}", *process.rank) : process.program;
  const std::string twin = process.has_twin ? " of " + process.nics[0].identity.substr(0, 6) : "";
  return fmt::format("{} ({}, pid {}{})", who, process.host, process.pid, twin);
}
inline std::string name_of(const SilentProcess& process) {
  return fmt::format("pid {} on {}", process.pid, process.host);
}

class Job {
 public:
  // Ignores a process that is known already.
  void add(Process process) {
    const auto known = [this](const Nic& nic) { return nics_.contains(nic.identity); };
    if (std::ranges::any_of(process.nics, known)) return;
    for (size_t i = 0; i < process.nics.size(); ++i) {
      nics_[process.nics[i].identity] = {processes_.size(), i};
    }
    for (Process& other : processes_) {
      const bool alike = other.host == process.host && other.pid == process.pid;
      if (alike && !other.nics.empty() && !process.nics.empty()) {
        other.has_twin = process.has_twin = true;
      }
    }
    processes_.push_back(std::move(process));
  }
  void add(SilentProcess process) { silent_.push_back(std::move(process)); }

  const std::vector<Process>& processes() const { return processes_; }
  const std::vector<SilentProcess>& silent() const { return silent_; }
  bool empty() const { return processes_.empty() && silent_.empty(); }

  struct Place {
    const Process* process = nullptr;
    const Nic* nic = nullptr;
  };
  // The NIC of that identity and its process; null if they are not known.
  Place find(const std::string& identity) const {
    const auto found = nics_.find(identity);
    if (found == nics_.end()) return {};
    const Process& process = processes_[found->second.first];
    return {&process, &process.nics[found->second.second]};
  }

 private:
  std::vector<Process> processes_;
  std::vector<SilentProcess> silent_;
  std::unordered_map<std::string, std::pair<size_t, size_t>> nics_;  // process and NIC
};

}  // namespace pacecar::doctor
