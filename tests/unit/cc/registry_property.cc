// Controllers stay in bounds for any signals, and credit reaches every flow that waits for it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cc/credit.h"
#include "cc/credit_share.h"
#include "cc/grant_word.h"
#include "cc/rccc.h"
#include "cc/registry.h"
#include "cc/swift.h"
#include "tests/support/one_controller.h"

namespace pacecar::registry_property {
namespace {

// --- controllers ---

Duration any_duration() {
  const int64_t scale = *rc::gen::element<int64_t>(0, 1, 1000, 1'000'000, 1'000'000'000);
  return Duration::from_ns(*rc::gen::inRange<int64_t>(-2, 5000) * scale);
}

Bytes any_bytes() {
  return *rc::gen::oneOf(rc::gen::inRange<Bytes>(0, 1'000'000),
                         rc::gen::element<Bytes>(0, 1, std::numeric_limits<Bytes>::max()));
}

// Telemetry that switches have stamped or a peer has made up.
std::array<TelemetryHop, kMaxTelemetryHops> any_telemetry() {
  return *rc::gen::container<std::array<TelemetryHop, kMaxTelemetryHops>>(
      rc::gen::construct<TelemetryHop>(
          rc::gen::arbitrary<uint32_t>(), rc::gen::arbitrary<uint32_t>(),
          rc::gen::arbitrary<uint32_t>(), rc::gen::element<uint32_t>(0, 1, 400'000, UINT32_MAX)));
}

// One signal with any values that a hostile network may cause.
void signal(Controller& controller, Instant now) {
  switch (*rc::gen::inRange(0, 7)) {
    case 0:
      return controller.on_loss(now,
                                {.kind = *rc::gen::element(LossKind::kMissing, LossKind::kTrimmed),
                                 .lost = any_bytes(),
                                 .in_flight = any_bytes(),
                                 .sent = any_bytes()});
    case 1: return controller.on_timeout(now);
    case 2:
      return controller.on_grant(
          now, {.is_credit = *rc::gen::weightedElement<bool>({{3, false}, {1, true}}),
                .credit = any_bytes(),
                .rate = Rate::from_bps(any_bytes()),
                .phase = any_duration(),
                .aligned = *rc::gen::arbitrary<bool>(),
                .validity = any_duration(),
                .epoch = *rc::gen::arbitrary<uint16_t>()});
    case 3:
      controller.demand(now, {.backlog = any_bytes(),
                              .acked = any_bytes(),
                              .in_flight = any_bytes(),
                              .sent = any_bytes()});
      return;
    default:
      return controller.on_ack(now, {.rtt = any_duration(),
                                     .acked = any_bytes(),
                                     .marked = any_bytes(),
                                     .in_flight = any_bytes(),
                                     .sent = any_bytes(),
                                     .echo_marked = *rc::gen::arbitrary<bool>(),
                                     .hops = *rc::gen::inRange<uint8_t>(0, kMaxTelemetryHops + 1),
                                     .telemetry = any_telemetry()});
  }
}

// The least rate of a flow: one packet per second probes the network.
constexpr Rate kLeastRate = Rate::from_bps(100'000);

// A phase is at most one gap ahead, and so is the packet that waits when the grant arrives. A burst
// lasts a quarter of a round trip, or is one packet, at kLeastRate or more.
Duration longest_wait(const FlowEnvironment& environment) {
  const auto per_packet = static_cast<int64_t>(1 + environment.overhead / environment.mtu);
  const Duration quarter = Duration::from_ms(10) / 4 * per_packet;
  const Duration packet = kLeastRate.time_for(environment.mtu + environment.overhead);
  return std::max(Duration::from_ms(5), (quarter + packet) * 2);
}

RC_GTEST_PROP(CcProperty, ControllersStayInBounds, ()) {
  const Rate line = Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 800'000) * 1'000'000);
  const Bytes mtu = *rc::gen::inRange<Bytes>(1, 65'536);
  const Bytes burst = mtu * *rc::gen::inRange<Bytes>(1, 64);
  const Duration base = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 10'000'000));
  const ControllerInfo info =
      *rc::gen::elementOf(std::vector<ControllerInfo>(controllers().begin(), controllers().end()));
  const FlowEnvironment environment{.line_rate = line,
                                    .mtu = mtu,
                                    .overhead = *rc::gen::inRange<Bytes>(0, 200),
                                    .burst_bytes = burst,
                                    .base_rtt = base,
                                    .trimming = *rc::gen::arbitrary<bool>()};
  const auto controller = make_controller(info.name, environment, Rate()).value();
  Instant now = Instant::from_ns(*rc::gen::inRange<int64_t>(0, 1'000'000'000'000));
  const Duration wait = longest_wait(environment);
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    now = now + std::max(any_duration(), Duration());
    signal(*controller, now);
    const FlowLimits d = controller->decide(now);
    RC_ASSERT(d.rate <= line);
    RC_ASSERT(d.rate >= kLeastRate);
    RC_ASSERT(d.window >= mtu);
    RC_ASSERT(!d.aligned || d.first_send >= now);
    // The window is at most twice the target. Base and allowance are at most 1 s each; flow scaling
    // doubles the allowance.
    const Bytes most = std::max(line.bytes_in(Duration::from_s(6)), burst * 8);
    RC_ASSERT(d.window <= most);
    RC_ASSERT(d.first_send <= now + wait);
    if (const auto* swift = dynamic_cast<SwiftController*>(controller.get())) {
      RC_ASSERT(std::isfinite(swift->cwnd_packets()));
      RC_ASSERT(swift->cwnd_packets() >= kSwift.min_cwnd);
      RC_ASSERT(swift->target_delay() > Duration());
    }
  }
}

// Any constants that an experiment may set keep the controller in bounds.
RC_GTEST_PROP(CcProperty, AnyAcceptedConstantsAreSafe, ()) {
  const ControllerInfo info =
      *rc::gen::elementOf(std::vector<ControllerInfo>(controllers().begin(), controllers().end()));
  std::vector<NamedValue> constants;
  for (const ConstantInfo& row : info.constants()) {
    const double between = row.least + (row.most - row.least) * *rc::gen::inRange(0, 1000) / 1e3;
    constants.push_back(
        {std::string(row.name), *rc::gen::element(row.value, row.least, row.most, between)});
  }
  const Rate line = Rate::from_gbps(*rc::gen::inRange<uint64_t>(1, 800));
  const FlowEnvironment environment{
      .line_rate = line, .burst_bytes = 4096, .base_rtt = Duration::from_us(10)};
  const auto controller = make_controller(info.name, environment, Rate(), constants).value();
  Instant now;
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    now = now + std::max(any_duration(), Duration());
    signal(*controller, now);
    const FlowLimits d = controller->decide(now);
    RC_ASSERT(d.rate <= line);
    RC_ASSERT(d.rate >= kLeastRate);
    RC_ASSERT(d.window >= environment.mtu);
  }
}

// --- credit ---

// Senders on credit and their receiver. Packets are lost; grants are lost, and retransmitted after
// kRepeat.
class CreditModel {
 public:
  explicit CreditModel(uint32_t flows) : share_(kLink, flows), senders_(flows) {
    for (uint32_t f = 0; f < flows; ++f) share_.add_flow(now_, f);
  }

  void send(uint32_t flow, Bytes bytes) {
    senders_[flow].unsent += bytes;
    announce(flow);
  }
  // Advances by 500 ns; with `lossy` some packets are lost.
  void step(bool lossy) {
    now_ = now_ + Duration::from_ns(500);
    std::array<GrantUpdate, 4> updates;
    while (const size_t count = share_.poll_grants(now_, updates)) {
      for (size_t i = 0; i < count; ++i) grant(updates[i]);
    }
    for (uint32_t f = 0; f < senders_.size(); ++f) {
      if (now_ >= senders_[f].word_repeated) receive_grant(f);
      receive_ack(f, lossy);
      transmit(f);
    }
  }
  bool done() const {
    return std::ranges::all_of(senders_,
                               [](const Sender& s) { return s.unsent + s.in_flight == 0; });
  }

 private:
  static constexpr FlowEnvironment kLink{.line_rate = Rate::from_gbps(100),
                                         .mtu = 4000,
                                         .overhead = 60,
                                         .burst_bytes = 4000,
                                         .base_rtt = Duration::from_us(4)};
  static constexpr Duration kRepeat = Duration::from_us(20);  // the NIC retransmits a lost word
  struct Sender {
    RcccController controller{kLink};
    Bytes unsent = 0;
    Bytes in_flight = 0;
    Bytes sent = 0;
    Instant word_repeated = Instant::never();
  };

  void grant(const GrantUpdate& update) {
    RC_ASSERT(update.grant.is_credit);
    if (*rc::gen::inRange(0, 4) == 0) {
      senders_[update.flow].word_repeated = now_ + kRepeat;
    } else {
      receive_grant(update.flow);
    }
  }

  // A retransmitted word carries the newest grant.
  void receive_grant(uint32_t flow) {
    Sender& s = senders_[flow];
    s.word_repeated = Instant::never();
    s.controller.on_grant(now_, wire::decode_grant(wire::encode_grant(share_.grant(flow))));
    announce(flow);
  }

  void receive_ack(uint32_t flow, bool lossy) {
    Sender& s = senders_[flow];
    if (s.in_flight == 0) return;
    const Bytes acked_bytes = std::min<Bytes>(s.in_flight, 8000);
    s.in_flight -= acked_bytes;
    if (lossy && *rc::gen::arbitrary<bool>()) {
      s.unsent += acked_bytes;
      s.controller.on_loss(now_, {.lost = acked_bytes, .in_flight = s.in_flight, .sent = s.sent});
    } else {
      s.controller.on_ack(
          now_, {.rtt = {}, .acked = acked_bytes, .in_flight = s.in_flight, .sent = s.sent});
    }
    announce(flow);
  }

  void transmit(uint32_t flow) {
    Sender& s = senders_[flow];
    const FlowLimits d = s.controller.decide(now_);
    while (s.unsent > 0 && s.sent < d.credit) {
      const Bytes packet = std::min(s.unsent, kLink.mtu);
      s.unsent -= packet;
      s.in_flight += packet;
      s.sent += packet;
    }
  }

  void announce(uint32_t flow) {
    const Sender& s = senders_[flow];
    const auto demand = senders_[flow].controller.demand(
        now_, {.backlog = s.unsent + s.in_flight, .in_flight = s.in_flight, .sent = s.sent});
    RC_ASSERT(demand.has_value());
    share_.on_demand(now_, flow, wire::decode_demand(wire::encode_demand(*demand)));
    // The next CTS slot carries the grant in force, even if all words were lost.
    senders_[flow].controller.on_grant(now_,
                                       wire::decode_grant(wire::encode_grant(share_.grant(flow))));
  }

  Instant now_ = Instant::from_ns(1'000'000);
  CreditShare share_;
  std::vector<Sender> senders_;
};

RC_GTEST_PROP(CcProperty, CreditReachesEveryWaitingFlow, ()) {
  const auto flows = *rc::gen::inRange<uint32_t>(1, 6);
  CreditModel model(flows);
  for (int rounds = *rc::gen::inRange(1, 5); rounds > 0; --rounds) {
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      model.send(*rc::gen::inRange<uint32_t>(0, flows), *rc::gen::inRange<Bytes>(1, 300'000));
    }
    for (int i = *rc::gen::inRange(0, 40); i > 0; --i) model.step(true);
  }
  for (int i = 0; i < 2000 && !model.done(); ++i) model.step(false);
  RC_ASSERT(model.done());
}

RC_GTEST_PROP(CcProperty, CreditForHostileSendersStaysBounded, ()) {
  const FlowEnvironment link{.line_rate = Rate::from_gbps(*rc::gen::inRange<uint64_t>(1, 800)),
                             .mtu = *rc::gen::inRange<Bytes>(1, 65'536),
                             .overhead = 60,
                             .burst_bytes = {},
                             .base_rtt = any_duration()};
  constexpr uint32_t kFlows = 8;
  CreditShare share(link, kFlows);
  for (uint32_t f = 0; f < kFlows; ++f) share.add_flow(Instant(), f);
  const Instant start = Instant::from_ns(1'000'000);
  Instant now = start;
  Bytes granted = 0;
  for (int i = *rc::gen::inRange(0, 100); i > 0; --i) {
    const auto flow = *rc::gen::inRange<uint32_t>(0, kFlows);
    share.on_demand(now, flow, wire::decode_demand(*rc::gen::arbitrary<uint64_t>() | ~0ULL << 40));
    now = now + Duration::from_ns(*rc::gen::inRange<int64_t>(0, 3000));
    std::array<GrantUpdate, kFlows> before;
    for (uint32_t f = 0; f < kFlows; ++f) before[f].grant = share.grant(f);
    std::array<GrantUpdate, 4> updates;
    while (share.poll_grants(now, updates) == updates.size()) {
    }
    for (uint32_t f = 0; f < kFlows; ++f) {
      granted += share.grant(f).credit - before[f].grant.credit;
    }
    if (share.next_deadline() != Instant::never()) RC_ASSERT(share.next_deadline() > now);
  }
  const Bytes pull = 4 * link.mtu + kCreditUnit;
  RC_ASSERT(granted <= link.line_rate.bytes_in(now - start) + pull);
}

}  // namespace
}  // namespace pacecar::registry_property
