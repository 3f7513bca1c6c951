// Why a flow is slow: a table of rules, worst first. The first that holds is the diagnosis.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// A flow of a job, with what surrounds it.
struct Path {
  const Job* job = nullptr;
  const Process* process = nullptr;
  const Nic* nic = nullptr;
  const Flow* flow = nullptr;

  // Nullptr where the peer's process is not known.
  const Process* peer() const;
  const Nic* peer_nic() const;
  // The peer's process, or its address.
  std::string peer_name() const;
};

struct Rule {
  std::string_view name;
  bool trouble = false;      // else: how fast it is, and why not faster
  bool blames_peer = false;  // the peer is waited for
  bool (*holds)(const Path&) = nullptr;
  std::string (*why)(const Path&) = nullptr;  // one sentence
};

std::span<const Rule> rules();
// The last rule holds for every path.
const Rule& diagnose(const Path& path);

// For people: "12.3 Gb/s".
std::string rate_text(double bps);

}  // namespace pacecar::doctor
