// ShareLink: HostLink on a ShareTable: one direction of the link, for one process.
// A process publishes its claim, reads all claims and computes every part. It takes a smaller part
// at once. It raises its part only into the free rate, then reads the other parts again, and gives
// back what exceeds the link, because several may have raised at the same moment. The last to store
// sees all other parts. So the sum is at most the link after every process has re-read.
// A change below 1/64 is not published. A cut of our own part always is, and so is a raise while
// the others use nothing. A process that waits for the cuts of others reads again after 2 us, then
// at intervals that double up to 1 ms, because the others may be asleep and nobody wakes it. Beats,
// and what a stopped process loses: README.md. A process without a demand takes nothing. If
// LinkClaim::ready is also false, due() is always false. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "cc/host_link.h"
#include "transport/share/division.h"
#include "transport/share/share_seat.h"

namespace pacecar {

template <typename Word>
class BasicShareLink final : public HostLink {
 public:
  using Seat = BasicShareSeat<Word>;

  // A process whose part is 0 uses this fraction of the link: a rate is never 0.
  static constexpr uint64_t kLeastPart = 4096;
  // A process without a slot cannot see the others, and uses this fraction of the link.
  static constexpr uint64_t kPartWithoutSlot = 4;

  // `seat` outlives it.
  BasicShareLink(Seat& seat, LinkDirection direction)
      : seat_(seat),
        direction_(static_cast<size_t>(direction)),
        capacity_(seat.capacity()),
        link_(capacity_),
        part_(capacity_) {}

  void claim(Instant now, const LinkClaim& claim) override {
    // Load the generation before the claims: a change made meanwhile then makes due() true.
    const uint64_t generation = number().load();
    prospect_of_ = 0;
    active_ = claim.demand.bps() > 0;
    watchful_ = active_ || claim.ready;
    if (!seat_.take(now)) return use_part_without_slot(now);
    bool changed = publish(now, claim);
    read_others(now);
    if (active_) {
      changed |= take_part(now);
    } else {
      part_ = std::min(capacity_, link_ - std::min(link_, used_));
      deadline_ = Instant::never();
    }
    part_ = std::max<uint64_t>(part_, least_part());
    seen_ = generation;
    if (changed && number().fetch_add(1) == generation) ++seen_;
  }

  bool due(Instant now) const override {
    return watchful_ && (number().load() != seen_ || now >= deadline_);
  }

  Instant next_deadline() const override { return active_ ? deadline_ : Instant::never(); }

  uint32_t place() const override {
    return seat_.index() == Seat::kNone ? 0 : static_cast<uint32_t>(seat_.index());
  }

  Rate part() const override { return Rate::from_bps(part_); }

  Rate reach() const override { return could_have(own_claim_.weight, /*ready_begin=*/false); }

  Rate prospect(uint32_t weight) const override {
    weight = std::max(weight, 1U);
    if (prospect_of_ != weight) {  // called at every turn
      prospect_of_ = weight;
      prospect_ = could_have(weight, /*ready_begin=*/true);
    }
    return prospect_;
  }

  double share_of_weights() const override {
    const double own = std::max(own_claim_.weight, 1U);
    double all = own;
    for (const Other& other : others()) {
      if (other.claim.demand.bps() > 0) all += other.claim.weight;
    }
    return own / all;
  }

  // Does not change the generation, so nobody wakes up for it.
  Rate fair_part(Rate learnt) override {
    if (!seat_.holds()) return learnt;
    const uint64_t own_rate = active_ ? std::min(learnt.bps(), capacity_) : 0;
    set(own().learnt, own_rate);
    if (own_rate == 0) return learnt;
    const uint64_t weight = std::max(own_claim_.weight, 1U);
    uint64_t sum = own_rate;
    uint64_t weights = weight;
    for (const Other& other : others()) {
      const uint64_t theirs = seat_.table().slots[other.slot].directions[direction_].learnt.load();
      if (other.claim.demand.bps() == 0 || theirs == 0) continue;
      sum += std::min(theirs, link_);
      weights += std::max(other.claim.weight, 1U);
    }
    return Rate::from_bps(std::min(part_of(std::min(sum, link_), weight, weights), capacity_));
  }

  Rate used_by_others() const override { return Rate::from_bps(used_); }

 private:
  static constexpr uint64_t kLeastChange = 64;
  static constexpr Duration kFirstLook = Duration::from_us(2);
  static constexpr Duration kLastLook = Duration::from_ms(1);
  // Interval at which one slot is checked for a dead owner.
  static constexpr Duration kReleaseInterval = Duration::from_ms(50);

  struct Other {
    size_t slot = 0;
    LinkClaim claim;
    uint64_t taking = 0;
  };

  // Divides the link: our share comes first, then the shares of others(). If `ready_begin`, each
  // process that is ready counts as demanding the whole link.
  std::array<ShareOfLink, kShareSlots> divide(uint64_t demand, uint32_t weight,
                                              bool ready_begin) const {
    std::array<ShareOfLink, kShareSlots> shares;
    shares[0] = {.demand = demand, .weight = std::max(weight, 1U)};
    std::ranges::transform(others(), shares.begin() + 1, [&](const Other& other) {
      const bool begins = ready_begin && other.claim.ready;
      return ShareOfLink{.demand = begins ? link_ : other.claim.demand.bps(),
                         .weight = std::max(other.claim.weight, 1U)};
    });
    divide_link(link_, std::span(shares).first(count_ + 1));
    return shares;
  }

  // Our part if we demanded the whole link.
  Rate could_have(uint32_t weight, bool ready_begin) const {
    if (others().empty()) return Rate::from_bps(capacity_);
    const uint64_t fair = divide(capacity_, weight, ready_begin)[0].fair;
    return Rate::from_bps(std::clamp(fair, least_part(), capacity_));
  }

  uint64_t least_part() const { return std::max<uint64_t>(capacity_ / kLeastPart, 1); }
  Word& number() const { return seat_.table().generations[direction_].number; }
  auto& own() const { return seat_.slot().directions[direction_]; }
  std::span<const Other> others() const { return {others_.data(), count_}; }

  static bool set(Word& word, uint64_t value) {
    if (word.load() == value) return false;
    word.store(value);
    return true;
  }

  static bool much(uint64_t change, uint64_t of) {
    return change > 0 && change >= of / kLeastChange;
  }

  // The claim to publish: a demand that has hardly changed keeps its old value.
  LinkClaim settled(const LinkClaim& claim) const {
    const uint64_t before = ClaimWord::decode(own().claim.load()).demand.bps();
    const uint64_t demand = std::min(claim.demand.bps(), capacity_);
    LinkClaim result = claim;
    const uint64_t change = std::max(before, demand) - std::min(before, demand);
    const bool same = before > 0 && demand > 0 && before <= capacity_ && !much(change, before);
    result.demand = Rate::from_bps(same ? before : demand);
    if (active_) result.weight = std::max(result.weight, 1U);
    return result;
  }

  bool publish(Instant now, const LinkClaim& claim) {
    // After a long silence others may have taken our part, so start again at 0.
    bool changed = false;
    if (!active_ || now - beat_ > kShareOwnSilence) changed = set(own().taking, 0);
    own_claim_ = settled(claim);
    changed |= set(own().claim, ClaimWord::encode(own_claim_));
    if (!active_) return changed;
    beat_ = now;
    own().beat.store(static_cast<uint64_t>(now.ns()));
    return changed;
  }

  // Whether to count the slot's process. One with a demand counts only with a fresh beat. One
  // without a demand counts if it is ready, whatever the age of its beat.
  bool read(size_t slot, Instant now, Other& other) const {
    const auto& theirs = seat_.table().slots[slot].directions[direction_];
    other.claim = ClaimWord::decode(theirs.claim.load());
    other.taking = 0;
    if (other.claim.demand.bps() == 0) return other.claim.ready;
    if (!share_beat_lives(theirs.beat.load(), now)) return false;
    other.taking = std::min(theirs.taking.load(), ClaimWord::kMostDemand);
    return true;
  }

  void read_others(Instant now) {
    bool may_release = active_ && now >= next_release_;
    if (may_release) next_release_ = now + kReleaseInterval;
    used_ = 0;
    count_ = 0;
    link_ = capacity_;
    const size_t first = first_;  // starts behind the slot checked last: round robin
    for (size_t i = 0; i < kShareSlots; ++i) {
      const size_t slot = (first + i) % kShareSlots;
      if (slot == seat_.index() || seat_.table().slots[slot].owner.load() == 0) continue;
      Other& other = others_[count_];
      other.slot = slot;
      const bool counts = read(slot, now, other);
      if (counts) {
        ++count_;
        used_ += other.taking;
        link_ = std::max(link_, seat_.capacity_of(slot));
      }
      if (may_release && (!counts || other.claim.demand.bps() == 0)) {
        may_release = false;
        first_ = (slot + 1) % kShareSlots;
        seat_.release_if_ended(slot);
      }
    }
  }

  uint64_t taken_by_others(Instant now) const {
    uint64_t sum = 0;
    Other other;
    for (size_t i = 0; i < kShareSlots; ++i) {
      if (i == seat_.index() || seat_.table().slots[i].owner.load() == 0) continue;
      if (read(i, now, other)) sum += other.taking;
    }
    return sum;
  }

  struct Aim {
    uint64_t fair = 0;    // our part
    uint64_t missed = 0;  // sum over processes of max(fair part - part in use, 0)
  };
  Aim aim(uint64_t taking) const {
    const auto shares = divide(own_claim_.demand.bps(), own_claim_.weight, /*ready_begin=*/false);
    Aim result{.fair = std::min(shares[0].fair, capacity_)};
    result.missed = result.fair - std::min(taking, result.fair);
    for (size_t i = 0; i < count_; ++i) {
      const uint64_t fair = shares[i + 1].fair;
      result.missed += fair - std::min(others_[i].taking, fair);
    }
    return result;
  }

  bool take_part(Instant now) {
    const uint64_t taking = std::min(own().taking.load(), capacity_);
    const Aim to = aim(taking);
    bool changed = false;
    part_ = taking;
    if (to.fair < taking) {
      part_ = to.fair;
      changed = set(own().taking, part_);
    } else {
      const uint64_t missed = to.fair - taking;
      const uint64_t room = link_ - std::min(link_, used_ + taking);
      const uint64_t gain = to.missed <= room ? missed : part_of(room, missed, to.missed);
      if (much(gain, taking) || (gain > 0 && used_ == 0)) changed = raise(now, taking, gain);
    }
    const bool waits = much(to.fair - std::min(to.fair, part_), part_);
    look_ = !waited_ || changed ? kFirstLook : std::min(look_ * 2, kLastLook);
    waited_ = waits;
    deadline_ = now + (waits ? look_ : kShareBeat);
    return changed;
  }

  bool raise(Instant now, uint64_t taking, uint64_t gain) {
    own().taking.store(taking + gain);  // sequentially consistent with the following loads
    used_ = taken_by_others(now);
    const uint64_t sum = used_ + taking + gain;
    const uint64_t excess = sum - std::min(sum, link_);
    part_ = taking + gain - std::min(gain, excess);
    set(own().taking, part_);
    return true;
  }

  void use_part_without_slot(Instant now) {
    used_ = 0;
    count_ = 0;
    part_ = std::max<uint64_t>(capacity_ / kPartWithoutSlot, 1);
    deadline_ = active_ ? now + kShareBeat : Instant::never();
    seen_ = number().load();
  }

  Seat& seat_;
  const size_t direction_;
  const uint64_t capacity_;
  // The largest capacity that any process published, so that all divide the same total.
  uint64_t link_;
  LinkClaim own_claim_;  // as published
  bool active_ = false;  // it has a demand
  bool watchful_ = false;
  uint64_t part_;
  uint64_t used_ = 0;  // by others
  uint64_t seen_ = 0;  // of the generation
  Instant beat_ = Instant::from_ns(0);
  Instant deadline_ = Instant::never();
  bool waited_ = false;  // the last call had to wait for others to cut their parts
  Duration look_ = kFirstLook;
  Instant next_release_ = Instant::from_ns(0);
  size_t first_ = 0;
  std::array<Other, kShareSlots> others_;  // at the last claim
  size_t count_ = 0;
  mutable uint32_t prospect_of_ = 0;  // the weight of prospect_; 0: none
  mutable Rate prospect_;
};

// One NIC of one process among all that use the same NIC: its slot in their table, and its HostLink
// of each direction. A simulated host makes one table, and a member of it for each of its
// processes:
//   ShareTable table{};
//   ShareProcess process(number);  // not 0, and no two of a host the same
//   ShareMember member(table, process, "rank 0", line_rate);
//   config.outgoing = &member.outgoing();
//   config.incoming = &member.incoming();
template <typename Word>
class BasicShareMember {
 public:
  // Table and process outlive it. A slot is taken with the first claim at the latest.
  BasicShareMember(BasicShareTable<Word>& table, const ShareProcess& process, std::string_view name,
                   Rate capacity)
      : seat_(table, process, name, capacity),
        outgoing_(seat_, LinkDirection::kOutgoing),
        incoming_(seat_, LinkDirection::kIncoming) {}

  // False: all slots are in use.
  bool join(Instant now) { return seat_.take(now); }

  BasicShareLink<Word>& outgoing() { return outgoing_; }
  BasicShareLink<Word>& incoming() { return incoming_; }

 private:
  BasicShareSeat<Word> seat_;
  BasicShareLink<Word> outgoing_;
  BasicShareLink<Word> incoming_;
};

using ShareMember = BasicShareMember<std::atomic<uint64_t>>;

}  // namespace pacecar
