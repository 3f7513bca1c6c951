// Swift in a closed loop: n flows through one first-in first-out queue, everything else ideal.
#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>
#include <vector>

#include "cc/swift.h"

namespace pacecar::closed_loop_test {
namespace {

struct Network {
  Rate bottleneck;
  Duration base_rtt;
  Duration jitter;  // added to each round trip: 0 to this much, at random
};

struct Outcome {
  double utilisation = 0;  // of the bottleneck
  double jain = 0;         // fairness of the flows' bytes
  double delay = 0;        // mean round trip / mean target
  Bytes most_queued = 0;
};

// Each flow sends bursts at its rate while its window has room. The bursts queue, and are
// acknowledged.
class Bottleneck {
 public:
  Bottleneck(const Network& network, const FlowEnvironment& environment, size_t flows)
      : network_(network), environment_(environment) {
    for (size_t i = 0; i < flows; ++i) {
      flows_.push_back({SwiftController(environment), {}, {}, 0, true});
    }
  }

  // Runs for `duration`; the flows start one after the other in the first quarter, and the second
  // half is measured.
  Outcome run(Duration duration) {
    const auto n = static_cast<int64_t>(flows_.size());
    for (int64_t i = 0; i < n; ++i) {
      events_.push({Instant() + duration * i / (4 * n), {}, static_cast<size_t>(i), 0});
    }
    const Instant middle = Instant() + duration / 2;
    while (events_.top().at < Instant() + duration) {
      const Event e = events_.top();
      events_.pop();
      measuring_ = e.at >= middle;
      if (e.acked == 0) {
        flows_[e.flow].waiting = false;
        try_send(e.at, e.flow);
      } else {
        receive_ack(e);
      }
    }
    return outcome(duration / 2);
  }

 private:
  struct Flow {
    SwiftController controller;
    Instant next_send;
    Bytes in_flight = 0;
    Bytes delivered = 0;
    bool waiting = false;  // a send event is in the queue
  };
  struct Event {
    Instant at;
    Instant sent_at;
    size_t flow;
    Bytes acked;  // 0: time to send
    bool operator>(const Event& other) const { return at > other.at; }
  };

  void try_send(Instant now, size_t id) {
    Flow& f = flows_[id];
    const FlowLimits d = f.controller.decide(now);
    const Bytes room = d.window - std::min(d.window, f.in_flight);
    const Bytes bytes =
        std::min(room / environment_.mtu * environment_.mtu, environment_.burst_bytes);
    if (f.waiting || bytes == 0) return;
    if (now >= f.next_send) {
      f.in_flight += bytes;
      f.next_send = now + d.rate.time_for(bytes);
      enqueue(now, id, bytes);
    }
    f.waiting = true;
    events_.push({f.next_send, {}, id, 0});
  }

  void enqueue(Instant now, size_t id, Bytes bytes) {
    const Instant arrival = now + network_.base_rtt / 2;
    const Duration wait = std::max(idle_at_ - arrival, Duration());
    if (measuring_) most_queued_ = std::max(most_queued_, network_.bottleneck.bytes_in(wait));
    idle_at_ = arrival + wait + network_.bottleneck.time_for(bytes);
    const auto late = static_cast<int64_t>(random_()) % (network_.jitter.ns() + 1);
    events_.push({idle_at_ + network_.base_rtt / 2 + Duration::from_ns(late), now, id, bytes});
  }

  void receive_ack(const Event& e) {
    Flow& f = flows_[e.flow];
    f.in_flight -= e.acked;
    const Duration rtt = e.at - e.sent_at;
    f.controller.on_ack(e.at, {.rtt = rtt, .acked = e.acked, .in_flight = f.in_flight});
    if (measuring_) {
      f.delivered += e.acked;
      delays_ +=
          static_cast<double>(rtt.ns()) / static_cast<double>(f.controller.target_delay().ns());
      ++acks_;
    }
    try_send(e.at, e.flow);
  }

  Outcome outcome(Duration measured) const {
    double sum = 0;
    double squares = 0;
    for (const Flow& f : flows_) {
      const auto bytes = static_cast<double>(f.delivered);
      sum += bytes;
      squares += bytes * bytes;
    }
    return {.utilisation = sum / static_cast<double>(network_.bottleneck.bytes_in(measured)),
            .jain = sum * sum / (static_cast<double>(flows_.size()) * squares),
            .delay = delays_ / acks_,
            .most_queued = most_queued_};
  }

  Network network_;
  FlowEnvironment environment_;
  std::vector<Flow> flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::minstd_rand random_{1};
  Instant idle_at_;
  bool measuring_ = false;
  Bytes most_queued_ = 0;
  double delays_ = 0;
  double acks_ = 0;
};

const FlowEnvironment kFabricFlow{.line_rate = Rate::from_gbps(100),
                                  .mtu = 4096,
                                  .burst_bytes = 4096,
                                  .base_rtt = Duration::from_us(8)};
const Network kFabric{Rate::from_gbps(100), Duration::from_us(8), Duration::from_ns(500)};

// End hosts that are slower than their link, and an unknown base round trip.
const FlowEnvironment kSoftwareFlow{
    .line_rate = Rate::from_gbps(100), .mtu = 4096, .burst_bytes = 15 * 4096, .base_rtt = {}};
const Network kSoftware{Rate::from_gbps(30), Duration::from_us(30), Duration::from_us(20)};

void expect_converged(const Network& network, const FlowEnvironment& environment, size_t flows) {
  SCOPED_TRACE(std::to_string(flows) + " flows");
  const Outcome o = Bottleneck(network, environment, flows).run(Duration::from_ms(200));
  EXPECT_GE(o.utilisation, 0.98);
  EXPECT_LE(o.utilisation, 1.01) << "the model delivers more than the link carries";
  EXPECT_GE(o.jain, 0.95);
  EXPECT_GE(o.delay, 0.8);
  EXPECT_LE(o.delay, 1.2);
}

TEST(CcClosedLoop, FabricConvergesToTheTargetDelayAndFairShares) {
  for (const size_t flows : {2, 8, 32, 128}) expect_converged(kFabric, kFabricFlow, flows);
}

TEST(CcClosedLoop, SoftwareEndHostsConvergeToo) {
  for (const size_t flows : {1, 2, 8, 32, 128}) expect_converged(kSoftware, kSoftwareFlow, flows);
}

TEST(CcClosedLoop, AFlowAloneFillsItsLinkWithoutAQueue) {
  const Outcome o = Bottleneck(kFabric, kFabricFlow, 1).run(Duration::from_ms(10));
  EXPECT_GE(o.utilisation, 0.98);
  EXPECT_LE(o.most_queued, kFabricFlow.burst_bytes);
}

TEST(CcClosedLoop, RampsUpInAFewRoundTrips) {
  // Measured from the second half of 20 round trips.
  EXPECT_GE(Bottleneck(kFabric, kFabricFlow, 1).run(Duration::from_us(160)).utilisation, 0.95);
  EXPECT_GE(Bottleneck(kSoftware, kSoftwareFlow, 1).run(Duration::from_us(600)).utilisation, 0.9);
}

}  // namespace
}  // namespace pacecar::closed_loop_test
