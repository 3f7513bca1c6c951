// Offloads: optional features of a device, which of them are used, and why the others are not.
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
#include "transport/verbs/rate_limits.h"

namespace pacecar {

enum class Offload : uint8_t {
  kTimeStamps,  // completions carry the device's time
  kRateLimits,  // a queue pair of the device has a rate limit
};
inline constexpr size_t kOffloads = 2;
inline constexpr uint64_t kBpsPerKbps = 1000;  // libibverbs has rate limits in kb/s

using OffloadSet = std::array<bool, kOffloads>;  // by Offload

// "time_stamps,rate_limits". Error: kInvalidArgument, which lists the valid names.
Result<OffloadSet> parse_offloads(std::string_view text);

class Offloads {
 public:
  Offloads() = default;
  // The device's features, without `unwanted`.
  Offloads(const ibv_device_attr_ex& device, const OffloadSet& unwanted);

  bool uses(Offload which) const { return refused_[static_cast<size_t>(which)].empty(); }
  // Disables an offload; the first reason is kept.
  void refuse(Offload which, std::string_view because);

  // Of the device's queue pairs, if rate limits are used.
  RateLimits::Bounds limits() const {
    return {.least = Rate::from_bps(limits_.qp_rate_limit_min * kBpsPerKbps),
            .most = Rate::from_bps(limits_.qp_rate_limit_max * kBpsPerKbps)};
  }

  // "offloads: time_stamps; no rate_limits: the device has none for RC queue pairs; ..."
  std::string text() const;

 private:
  std::array<std::string, kOffloads> refused_{"not asked for", "not asked for"};
  ibv_packet_pacing_caps limits_{};
};

}  // namespace pacecar
