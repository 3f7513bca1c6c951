// A process's profiler records of one communicator (net_plugin/profiler/README.md), read as
// untrusted data. Times in nanoseconds of that process's own clock; sizes in bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace pacecar::doctor {

enum class ProfiledKind : uint8_t {
  kNone,
  kCollective,
  kPointToPoint,
  kProxyOp,
  kProxyStep,
  kKernel,
  kNetwork,
};

struct Waits {
  uint64_t gpu_ns = 0;
  uint64_t peer_ns = 0;
  uint64_t network_ns = 0;
  uint64_t flush_ns = 0;
};

struct ProfiledEvent {
  uint64_t id = 0;
  ProfiledKind kind = ProfiledKind::kNone;
  std::string operation;  // of a collective: "AllReduce"
  uint64_t datatype = 0;
  uint64_t channel = 0;
  bool sending = false;
  int64_t peer = -1;    // rank
  uint64_t number = 0;  // of a collective: among those of its operation
  uint64_t amount = 0;
  uint64_t parent = 0;
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;    // 0: it goes on
  uint64_t moment_ns = 0;  // a step's data left for, or came from, the network
  uint64_t first_ns = 0;   // of an operation, until its first message was ready
  uint64_t bytes = 0;
  Waits waits;
  bool detailed = true;  // of an operation: its messages were recorded
};

struct Profile {
  std::string communicator;
  int64_t rank = -1;
  uint64_t ranks = 0;     // 0: not known
  uint64_t since_ns = 0;  // the first look; 0: there was one look only
  uint64_t now_ns = 0;
  // The share of time between two samples in which a thread of the process was starved.
  double starved = 0;
  std::vector<ProfiledEvent> operations;  // the oldest first; collectives, their parts, kernels
  std::vector<ProfiledEvent> steps;       // and requests
};

// From two samples of the page /profile; `before` may be null. Errors: kPeer.
Result<std::vector<Profile>> read_profiles(const nlohmann::json& before, const nlohmann::json& now);

// The needed part of the first sample.
nlohmann::json essence_of_profile(const nlohmann::json& before);

}  // namespace pacecar::doctor
