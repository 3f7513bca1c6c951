// A PaceReceiver stays in bounds for any demands at any time, and senders with true demands get
// their max-min shares.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cc/grant_word.h"
#include "cc/pace/receiver.h"

namespace pacecar::receiver_property {
namespace {

constexpr uint32_t kFlows = 8;
constexpr Bytes kMtu = 4096;
constexpr PaceConstants kConstants;

FlowEnvironment any_link() {
  return {.line_rate = Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 800'000) * 1'000'000),
          .mtu = *rc::gen::inRange<Bytes>(1, 65'536),
          .overhead = *rc::gen::inRange<Bytes>(0, 200),
          .burst_bytes = *rc::gen::inRange<Bytes>(0, 200'000),
          .base_rtt = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 1'000'000))};
}

// A receiver, and the state of its senders.
class ReceiverModel {
 public:
  explicit ReceiverModel(const FlowEnvironment& link) : link_(link), receiver_(link, kFlows) {
    for (uint32_t f = 0; f < kFlows; ++f) receiver_.add_flow(now_, f);
  }

  void wait(Duration span) { now_ = now_ + span; }

  // Any call with any values, for any flow.
  void hostile_step() {
    wait(Duration::from_ns(*rc::gen::element<int64_t>(0, 1, 500, 1000, 60'000, 30'000'000)));
    const auto f = *rc::gen::inRange<uint32_t>(0, kFlows);
    const Bytes bytes = *rc::gen::element<Bytes>(0, 1, 255, kMtu, 1'000'000, ~Bytes{0} >> 1);
    switch (*rc::gen::inRange(0, 9)) {
      case 0: return receiver_.on_posted(now_, f, bytes);
      case 1: return receiver_.on_finished(now_, f, bytes);
      case 2:
        return receiver_.on_arrival(
            now_, f, bytes,
            {*rc::gen::arbitrary<uint32_t>(), *rc::gen::inRange<uint32_t>(0, 10'000)});
      case 3: return receiver_.on_foreign_arrival(now_, bytes);
      case 4: return receiver_.set_weight(now_, f, *rc::gen::inRange<uint32_t>(1, kMaxWeight + 1));
      case 5: return receiver_.on_hint(now_, {.peers = *rc::gen::arbitrary<uint32_t>()});
      case 6: return remove_and_add(f);
      case 7: poll(*rc::gen::inRange<size_t>(0, 5)); return;
      default: return demand(f, *rc::gen::arbitrary<uint64_t>());
    }
  }

  // A demand whose epoch is usually newer, as an older one would be ignored.
  void demand(uint32_t f, uint64_t word) {
    demand_epoch_[f] += *rc::gen::element<uint16_t>(1, 1, 1, 0, 100, 40'000);
    receiver_.on_demand(now_, f,
                        wire::decode_demand((word & ~uint64_t{0xFFFF}) | demand_epoch_[f]));
  }

  // Polls 3 ms of grants: their number is bounded.
  void settle() {
    size_t words = 0;
    for (const Instant end = now_ + Duration::from_ms(3); now_ <= end;) {
      while (receiver_.next_deadline() <= now_) {
        words += poll(*rc::gen::inRange<size_t>(1, 5));
        RC_ASSERT(++polls_ < 1'000'000U);
      }
      now_ = std::min(receiver_.next_deadline(), end + Duration::from_ns(1));
    }
    RC_ASSERT(words < kFlows * 4000U);
    RC_ASSERT(receiver_.active_flows() <= kFlows);
  }

  // A flow with much to send, of which nothing has arrived.
  void begin(uint32_t f, Rate usable) {
    receiver_.on_posted(now_, f, 1);
    wanted_[f] = usable == Rate() ? 0 : Bytes{1} << 30;
    usable_[f] = usable;
    repeat(f);
  }
  void repeat(uint32_t f) {
    receiver_.on_demand(now_, f,
                        {.usable = usable_[f], .wanted = wanted_[f], .epoch = ++demand_epoch_[f]});
  }
  // Flows with a demand repeat it `times` times; all grants are polled.
  void repeat_demands(int times) {
    for (int i = 0; i < times; ++i) {
      wait(Duration::from_us(5));
      for (uint32_t f = 0; f < kFlows; ++f) {
        if (usable_[f] > Rate()) repeat(f);
      }
      while (receiver_.next_deadline() <= now_) {
        poll(3);
        RC_ASSERT(++polls_ < 1'000'000U);
      }
    }
  }
  void weigh(uint32_t f, uint32_t weight) {
    weight_[f] = weight;
    receiver_.set_weight(now_, f, weight);
  }

  // The used parts of all grants fill the link, but not more; and no flow that is below its demand
  // has less per weight than another.
  void check_shares() const {
    double sum = 0;
    double wanted = 0;
    size_t active = 0;
    for (uint32_t f = 0; f < kFlows; ++f) {
      if (usable_[f] == Rate()) continue;
      ++active;
      sum += bps(std::min(granted_[f], usable_[f]));
      wanted += bps(usable_[f]);
    }
    RC_ASSERT(receiver_.active_flows() == active);
    if (active == 0) return;
    const double line = bps(link_.line_rate);
    const double link = line * (active == 1 ? 1 : kConstants.shared);
    RC_ASSERT(sum <= std::min(link, line) * (1 + kConstants.regrant));
    RC_ASSERT(sum >= std::min(link, wanted) * (1 - 0.011 - 2 * kConstants.regrant));
    for (uint32_t f = 0; f < kFlows; ++f) {
      if (usable_[f] == Rate() || bps(granted_[f]) >= bps(usable_[f])) continue;
      for (uint32_t other = 0; other < kFlows; ++other) {
        if (usable_[other] == Rate()) continue;
        const double mine = bps(granted_[f]) / weight_[f];
        const double theirs = bps(granted_[other]) / weight_[other];
        RC_ASSERT(mine >= theirs * (1 - 2.5 * kConstants.regrant));
      }
    }
  }

 private:
  static double bps(Rate rate) { return static_cast<double>(rate.bps()); }

  void remove_and_add(uint32_t f) {
    receiver_.remove_flow(now_, f);
    receiver_.add_flow(now_, f);
    granted_[f] = Rate();
    has_grant_[f] = false;
    demand_epoch_[f] = 0;
  }

  size_t poll(size_t room) {
    std::vector<GrantUpdate> updates(room);
    const size_t count = receiver_.poll_grants(now_, updates);
    RC_ASSERT(count <= room);
    for (size_t i = 0; i < count; ++i) apply(updates[i]);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t f = updates[i].flow;
      RC_ASSERT(receiver_.grant(f).epoch == epoch_[f]);
      RC_ASSERT(receiver_.grant(f).rate == granted_[f]);
    }
    return count;
  }

  void apply(const GrantUpdate& update) {
    const uint32_t f = update.flow;
    const Grant& grant = update.grant;
    RC_ASSERT(f < kFlows);
    RC_ASSERT(grant.rate > Rate());
    RC_ASSERT(grant.rate <= link_.line_rate);
    RC_ASSERT(grant.validity > Duration());
    RC_ASSERT(grant.phase >= Duration());
    RC_ASSERT(!has_grant_[f] || grant.epoch == static_cast<uint16_t>(epoch_[f] + 1));
    granted_[f] = grant.rate;
    epoch_[f] = grant.epoch;
    has_grant_[f] = true;
  }

  FlowEnvironment link_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceReceiver receiver_;
  size_t polls_ = 0;
  std::array<Rate, kFlows> usable_{};
  std::array<Bytes, kFlows> wanted_{};
  std::array<uint32_t, kFlows> weight_ = {1, 1, 1, 1, 1, 1, 1, 1};
  std::array<Rate, kFlows> granted_{};
  std::array<uint16_t, kFlows> epoch_{};
  std::array<bool, kFlows> has_grant_{};
  std::array<uint16_t, kFlows> demand_epoch_{};
};

RC_GTEST_PROP(CcPaceReceiverProperty, HostileDemandsKeepTheReceiverInBounds, ()) {
  ReceiverModel model(any_link());
  for (int rounds = *rc::gen::inRange(1, 5); rounds > 0; --rounds) {
    for (int i = *rc::gen::inRange(0, 40); i > 0; --i) model.hostile_step();
    model.settle();
  }
}

RC_GTEST_PROP(CcPaceReceiverProperty, GrantsAreMaxMinAndFitTheLink, ()) {
  const uint64_t mbps = *rc::gen::inRange<uint64_t>(10'000, 800'000);
  ReceiverModel model({.line_rate = Rate::from_bps(mbps * 1'000'000),
                       .mtu = kMtu,
                       .overhead = 64,
                       .burst_bytes = kMtu,
                       .base_rtt = Duration::from_us(8)});
  for (int rounds = *rc::gen::inRange(1, 6); rounds > 0; --rounds) {
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
      const auto f = *rc::gen::inRange<uint32_t>(0, kFlows);
      if (*rc::gen::inRange(0, 4) == 0) model.weigh(f, *rc::gen::element<uint32_t>(1, 2, 5));
      const uint64_t part = *rc::gen::element<uint64_t>(0, 1, 5, 10, 50, 100, 100);
      model.begin(f, Rate::from_bps(mbps * part * 10'000));
      model.wait(Duration::from_ns(*rc::gen::element<int64_t>(0, 100, 2000, 20'000)));
    }
    model.repeat_demands(12);
    model.check_shares();
  }
}

}  // namespace
}  // namespace pacecar::receiver_property
