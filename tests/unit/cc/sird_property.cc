// Under sird every byte arrives, whatever is lost, and the credit outstanding stays bounded.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "cc/grant_word.h"
#include "cc/sird.h"
#include "cc/sird_share.h"

namespace pacecar::sird_property {
namespace {

// Senders with one flow each, and their receiver. Packets are lost with `lossy`. Words come in
// order, and only the newest is delivered.
class Model {
 public:
  explicit Model(const FlowEnvironment& link, uint32_t flows)
      : link_(link), share_(link, flows), hosts_(flows) {
    for (uint32_t f = 0; f < flows; ++f) {
      share_.add_flow(now_, f);
      hosts_[f].senders = std::make_unique<SirdSenders>(link, NoConstants{}, 1);
      hosts_[f].controller = &hosts_[f].senders->add_flow(now_, 0);
    }
  }

  void send(uint32_t flow, Bytes bytes) {
    share_.on_posted(now_, flow, bytes);
    hosts_[flow].unsent += bytes;
    hosts_[flow].stats.backlog += bytes;
    announce(flow);
  }
  void step(bool lossy) {
    now_ = now_ + Duration::from_ns(500);
    std::array<GrantUpdate, 4> updates;
    while (const size_t count = share_.poll_grants(now_, updates)) {
      for (size_t i = 0; i < count; ++i) {
        const uint64_t word = wire::encode_grant(updates[i].grant);
        hosts_[updates[i].flow].controller->on_grant(now_, wire::decode_grant(word));
      }
    }
    for (uint32_t f = 0; f < hosts_.size(); ++f) {
      receive(f, lossy);
      transmit(f);
    }
  }
  bool done() const {
    return std::ranges::all_of(hosts_, [](const Host& h) { return h.stats.backlog == 0; });
  }
  Bytes outstanding() const { return share_.outstanding(); }

 private:
  struct Host {
    std::unique_ptr<SirdSenders> senders;
    Controller* controller = nullptr;
    Bytes unsent = 0;
    FlowStats stats;
  };

  void receive(uint32_t flow, bool lossy) {
    Host& h = hosts_[flow];
    const Bytes bytes = std::min<Bytes>(h.stats.in_flight, 2 * link_.mtu);
    if (bytes == 0) return;
    h.stats.in_flight -= bytes;
    if (lossy && *rc::gen::arbitrary<bool>()) {
      h.unsent += bytes;
    } else {
      h.stats.acked += bytes;
      h.stats.backlog -= bytes;
      share_.on_arrival(now_, flow, bytes, {});
      share_.on_finished(now_, flow, bytes);
      const Bytes marked = *rc::gen::element<Bytes>(0, bytes);
      h.controller->on_ack(now_, {.acked = bytes, .marked = marked});
    }
    announce(flow);
  }
  void transmit(uint32_t flow) {
    Host& h = hosts_[flow];
    const FlowLimits d = h.controller->decide(now_);
    while (h.unsent > 0 && h.stats.sent < d.credit) {
      const Bytes packet = std::min(h.unsent, link_.mtu);
      h.unsent -= packet;
      h.stats.in_flight += packet;
      h.stats.sent += packet;
    }
    announce(flow);
  }
  void announce(uint32_t flow) {
    const auto demand = hosts_[flow].controller->demand(now_, hosts_[flow].stats);
    share_.on_demand(now_, flow, wire::decode_demand(wire::encode_demand(*demand)));
  }

  FlowEnvironment link_;
  Instant now_ = Instant::from_ns(1'000'000);
  SirdShare share_;
  std::vector<Host> hosts_;
};

RC_GTEST_PROP(CcProperty, SirdDeliversEveryByte, ()) {
  const FlowEnvironment link{.line_rate = Rate::from_gbps(100),
                             .mtu = *rc::gen::inRange<Bytes>(1, 9000),
                             .overhead = 60,
                             .base_rtt = Duration::from_us(*rc::gen::inRange(1, 20))};
  const auto flows = *rc::gen::inRange<uint32_t>(1, 6);
  Model model(link, flows);
  for (int rounds = *rc::gen::inRange(1, 5); rounds > 0; --rounds) {
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      model.send(*rc::gen::inRange<uint32_t>(0, flows),
                 *rc::gen::inRange<Bytes>(1, 100 * link.mtu));
    }
    for (int i = *rc::gen::inRange(0, 40); i > 0; --i) model.step(true);
  }
  for (int i = 0; i < 20'000 && !model.done(); ++i) model.step(false);
  RC_ASSERT(model.done());
  RC_ASSERT(model.outstanding() == 0U);
}

RC_GTEST_PROP(CcProperty, SirdCreditForHostileSendersStaysBounded, ()) {
  const FlowEnvironment link{.line_rate = Rate::from_gbps(*rc::gen::inRange<uint64_t>(1, 800)),
                             .mtu = *rc::gen::inRange<Bytes>(1, 65'536),
                             .overhead = 60,
                             .base_rtt = Duration::from_us(*rc::gen::inRange(0, 100))};
  constexpr uint32_t kFlows = 8;
  SirdShare share(link, kFlows);
  for (uint32_t f = 0; f < kFlows; ++f) share.add_flow(Instant(), f);
  Instant now = Instant::from_ns(1'000'000);
  Bytes announced = 0;  // as unscheduled, at most
  const Bytes most =
      static_cast<Bytes>(kSird.outstanding * sird_bdp(link)) + kSird.pull_packets * link.mtu;
  for (int i = *rc::gen::inRange(0, 100); i > 0; --i) {
    const auto flow = *rc::gen::inRange<uint32_t>(0, kFlows);
    const uint64_t word = *rc::gen::arbitrary<uint64_t>() | ~0ULL << 40;
    if ((word & kSirdUnscheduled) != 0)
      announced += static_cast<Bytes>(sird_bdp(link)) + kCreditUnit;
    share.on_demand(now, flow, wire::decode_demand(word));
    share.on_arrival(now, flow, *rc::gen::inRange<Bytes>(0, 100'000), {});
    now = now + Duration::from_ns(*rc::gen::inRange<int64_t>(0, 3000));
    std::array<GrantUpdate, 4> updates;
    while (share.poll_grants(now, updates) == updates.size()) {
    }
    RC_ASSERT(share.outstanding() <= most + announced);
    RC_ASSERT(share.next_deadline() > now);
  }
}

}  // namespace
}  // namespace pacecar::sird_property
