// How fast a flow may send: decided by its congestion control, applied by its NIC.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "transport/base/send_grid.h"
#include "transport/base/units.h"

namespace pacecar {

enum class LimitedBy : uint8_t {
  kLine,         // the sender's link, or this flow's share of the link
  kGrant,        // the receiver
  kNetwork,      // signs of congestion
  kWindow,       // as much is in flight as the congestion control allows at a time
  kBudget,       // the rate that the application set
  kHost,         // a host is too slow, or too little is in flight
  kApplication,  // there is no more to send
};
inline constexpr std::array kEveryLimit = {
    LimitedBy::kLine,   LimitedBy::kGrant, LimitedBy::kNetwork,    LimitedBy::kWindow,
    LimitedBy::kBudget, LimitedBy::kHost,  LimitedBy::kApplication};
constexpr std::string_view to_string(LimitedBy limit) {
  constexpr std::array<std::string_view, kEveryLimit.size()> kNames = {
      "line", "grant", "network", "window", "budget", "host", "application"};
  return kNames[static_cast<size_t>(limit)];
}

inline constexpr Bytes kNoCredit = ~Bytes{0};

struct FlowLimits {
  Rate rate;
  Instant first_send;  // phase: nothing before this time
  // The next packet leaves at `first_send`, even if it would otherwise have waited for longer.
  bool aligned = false;
  SendGrid grid;     // the next departure moves to its nearest instant; none: it stays
  Bytes window = 0;  // most bytes in flight
  Bytes burst = 0;   // payload that may leave at once; 0: caps().burst_bytes of the NIC, the most
  // The bytes that the flow may have sent since it began, retransmissions included. A packet that
  // begins within the credit is sent whole. kNoCredit: no such limit.
  Bytes credit = kNoCredit;
  LimitedBy limited_by = LimitedBy::kLine;  // for reports
  // A new rate applies from the next packet on: the waiting packet's departure does not change.
  bool from_next_packet = false;
};

}  // namespace pacecar
