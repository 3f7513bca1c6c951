// Offloads: what a device does beyond what every RDMA NIC does, which of it is used, and why the
// rest is not.
//
// Thread rule: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

enum class Offload : uint8_t {
  kTimeStamps,  // completions say when, by the device's clock
  kRateLimits,  // a queue pair of the device keeps to a rate
  kCalls,       // work requests are posted by ibv_wr_*, not as structures
};
inline constexpr size_t kOffloads = 3;

using OffloadSet = std::array<bool, kOffloads>;  // by Offload

// "time_stamps,calls". Error: kInvalidArgument, naming those that there are.
Result<OffloadSet> parse_offloads(std::string_view text);

class Offloads {
 public:
  Offloads() = default;
  // What the device says that it has, without `unwanted`.
  Offloads(const ibv_device_attr_ex& device, const OffloadSet& unwanted);

  bool uses(Offload which) const { return refused(which).empty(); }
  // It is not used after all; the first reason stands.
  void refuse(Offload which, std::string_view because);
  // Finds out whether the device makes queue pairs that take ibv_wr_*.
  void try_calls(ibv_pd* domain, ibv_cq* completions);

  // Of queue pairs of the device; where they are used.
  Rate least_limit() const;
  Rate most_limit() const;

  // "offloads: time_stamps; no rate_limits: the device has none for RC queue pairs; ..."
  std::string text() const;

 private:
  const std::string& refused(Offload which) const { return refused_[static_cast<size_t>(which)]; }

  std::array<std::string, kOffloads> refused_{"not asked for", "not asked for", "not asked for"};
  ibv_packet_pacing_caps limits_{};
};

// What ibv_create_qp_ex is told of the work requests that we post.
inline constexpr uint64_t kPostedOperations = IBV_QP_EX_WITH_RDMA_WRITE |
                                              IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;

}  // namespace pacecar
