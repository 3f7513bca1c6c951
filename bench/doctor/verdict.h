// Why a flow is slow: a table of rules, worst first, of which the first that holds is the
// diagnosis. The findings of a job, worst first, and the verdict: the slowest process, NIC and
// path. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// A flow of a job, with its NIC and process.
struct Path {
  const Job* job = nullptr;
  const Process* process = nullptr;
  const Nic* nic = nullptr;
  const Flow* flow = nullptr;

  // Null if the peer's process is not known.
  const Nic* peer_nic() const;
  // The peer's process, or its address.
  std::string peer_name() const;
  // "to rank 3 (node2, pid 812)", "from 192.0.2.7:4791"
  std::string end() const;
};

struct Rule {
  std::string_view name;
  bool trouble = false;                       // otherwise it is what limits the rate
  bool blames_peer = false;                   // the flow waits for the peer
  bool (*holds)(const Path&) = nullptr;       // null: for a sending flow that has this limit
  std::string (*why)(const Path&) = nullptr;  // one sentence
};

std::span<const Rule> rules();
// The first rule that holds; if there is none, the last.
const Rule& diagnose(const Path& path);

// For people: "12.3 Gb/s".
std::string rate_text(double bps);

struct Finding {
  Path path;
  const Rule* rule = nullptr;

  std::string why() const { return rule->why(path); }
};

// A finding for every sending flow, and for receiving flows with trouble. Points into the job.
std::vector<Finding> examine(const Job& job);

// The process for which most others wait, directly or through each other.
struct WaitedFor {
  std::string name;
  size_t waiters = 0;
  bool circle = false;               // there is none: `waiters` processes wait for each other
  const Finding* longest = nullptr;  // of a flow that waits for it
};
std::optional<WaitedFor> waited_for(const std::vector<Finding>& findings);

struct Verdict {
  bool trouble = false;
  std::string rule;     // the one that holds; empty: none
  std::string process;  // the slowest; empty: none is slow
  std::string nic;
  std::string path;
  std::string why;  // one sentence
};
Verdict conclude(const Job& job, const std::vector<Finding>& findings);

}  // namespace pacecar::doctor
