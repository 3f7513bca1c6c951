// Why a flow is slow: a table of rules, worst first. The first that holds is the diagnosis. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

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

}  // namespace pacecar::doctor
