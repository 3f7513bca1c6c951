// A PaceReceiver with flows that want to send, for tests of its grants. Virtual time; one thread.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cc/grant_word.h"
#include "cc/pace/receiver.h"

namespace pacecar::test {

inline constexpr double kLine = 400;
inline constexpr Duration kRoundTrip = Duration::from_us(8);
inline constexpr PaceConstants kConstants;
inline constexpr double kShared = kConstants.shared * kLine;
// An advertised rate is rounded down by at most 1.1%, and changes below 1/64 are not advertised.
inline constexpr double kTolerance = 0.03;
inline constexpr Bytes kEndless = Bytes{1} << 30;
inline constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                         .mtu = 4096,
                                         .overhead = 64,
                                         .burst_bytes = 4096,
                                         .base_rtt = kRoundTrip};

class PaceReceiverTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kFlows = 1100;

  void add(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) receiver_.add_flow(now_, flows_++);
  }
  void post(uint32_t flow, Bytes bytes = kEndless) { receiver_.on_posted(now_, flow, bytes); }
  void demand(uint32_t flow, double usable_gbps, Bytes wanted) {
    Demand& newest = demands_[flow];
    newest.usable = Rate::from_bps(static_cast<uint64_t>(usable_gbps * 1e9));
    newest.wanted = wanted;
    ++newest.epoch;
    receiver_.on_demand(now_, flow, wire::decode_demand(wire::encode_demand(newest)));
  }
  void begin(uint32_t flow, double usable_gbps = kLine, Bytes wanted = kEndless) {
    post(flow, wanted);
    demand(flow, usable_gbps, wanted);
  }
  // Polls all grants that are due now.
  std::vector<GrantUpdate> poll(size_t room = 16) {
    std::vector<GrantUpdate> grants;
    std::vector<GrantUpdate> updates(room);
    for (size_t count = room; count == room;) {
      count = receiver_.poll_grants(now_, updates);
      for (size_t i = 0; i < count; ++i) {
        grants.push_back(updates[i]);
        take_grant(updates[i]);
      }
    }
    return grants;
  }
  // Polls all grants that are due within `span`.
  std::vector<GrantUpdate> run(Duration span) {
    std::vector<GrantUpdate> grants;
    for (const Instant end = now_ + span; now_ <= end;) {
      for (int again = 0; receiver_.next_deadline() <= now_; ++again) {
        const std::vector<GrantUpdate> some = poll();
        grants.insert(grants.end(), some.begin(), some.end());
        if (again > 100) {
          ADD_FAILURE() << "always due";
          return grants;
        }
      }
      if (receiver_.next_deadline() > end) break;
      now_ = receiver_.next_deadline();
    }
    return grants;
  }
  // Each grant of a flow has the epoch that follows the last one's.
  void take_grant(const GrantUpdate& update) {
    const Grant& grant = update.grant;
    if (epochs_.contains(update.flow)) {
      EXPECT_EQ(grant.epoch, static_cast<uint16_t>(epochs_[update.flow] + 1)) << update.flow;
    }
    epochs_[update.flow] = grant.epoch;
    rates_[update.flow] = grant.rate.gbps();
  }
  double sum() const {
    double sum = 0;
    for (const auto& [flow, rate] : rates_) sum += rate;
    return sum;
  }
  void expect_rate(uint32_t flow, double gbps) {
    EXPECT_LE(rates_[flow], gbps * (1 + kTolerance)) << flow;
    EXPECT_GE(rates_[flow], gbps * (1 - kTolerance)) << flow;
  }

  PaceReceiver receiver_{kFabric, kFlows};
  uint32_t flows_ = 0;
  std::map<uint32_t, Demand> demands_;
  std::map<uint32_t, uint16_t> epochs_;
  std::map<uint32_t, double> rates_;  // newest rate, Gb/s
  Instant now_ = Instant::from_ns(1'000'000'000);
};

}  // namespace pacecar::test
