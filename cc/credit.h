// Credit: units and limits of the receiver's permission to send, for both ends (rccc.h and sird.h
// at the sender, credit_share.h and sird_share.h at the receiver) and for the control words between
// them (grant_word.h).
// Credit and wish are cumulative counts of payload bytes that grow by whole units and travel modulo
// 2^24 units: the next control word replaces a lost one, and a late one changes nothing. Both ends
// use the same constants. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/controller.h"
#include "cc/rate_law.h"

namespace pacecar {

inline constexpr Bytes kCreditUnit = 64;  // payload bytes
inline constexpr int kCreditBits = 24;    // of a count of units on the wire

// UEC 1.0, receiver credit congestion control; values of its reference simulator, except "ours".
struct CreditConstants {
  // Name and default                 Unit, range, source.
  uint64_t rate_percent = 99;        // of line rate that is granted, [1, 100]; pull pacer
  Bytes pull_packets = 4;            // granted at once, >= 1; 16 KiB there
  double limit_round_trips = 1.5;    // at line rate, >= 1; speculative credit
  Bytes limit_min_packets = 8;       // where the round trip is very short, >= 1; ours
  Bytes limit_max = Bytes{1} << 28;  // bytes, < 2^29, so that counts compare; ours
  Duration ask_again = Duration::from_ms(2);
  Duration max_lateness = Duration::from_us(50);  // for which the pacer catches up, > a poll; ours
};
inline constexpr CreditConstants kCredit;

constexpr uint64_t credit_units(Bytes bytes) {
  return bytes / kCreditUnit + (bytes % kCreditUnit != 0 ? 1 : 0);
}

// How far a word's count is ahead of `units`; negative: behind.
constexpr int64_t credit_ahead(Bytes credit, uint64_t units) {
  constexpr int kUnused = 64 - kCreditBits;
  return static_cast<int64_t>((credit / kCreditUnit - units) << kUnused) >> kUnused;
}

// The most credit that a flow leaves unused, asks for at once, or sends before its first grant.
inline Bytes credit_limit(const FlowEnvironment& environment) {
  const double bps = environment.line_rate.real_bps() * kCredit.limit_round_trips;
  const Bytes bytes = window_for(bps, base_round_trip(environment), environment);
  return std::clamp(bytes, kCredit.limit_min_packets * environment.mtu, kCredit.limit_max);
}

}  // namespace pacecar
