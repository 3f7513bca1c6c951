#include "transport/share/share_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace pacecar::share_link_test {
namespace {

constexpr Rate kLink = Rate::from_gbps(100);
constexpr Instant kStart = Instant::from_ns(1'000'000'000);

LinkClaim full(uint32_t weight = 1) { return {.demand = kLink, .weight = weight, .ready = true}; }
LinkClaim wants(uint64_t gbps) { return {.demand = Rate::from_gbps(gbps), .weight = 1}; }

class ScriptedProcess final : public ShareProcess {
 public:
  using ShareProcess::ShareProcess;
  uint64_t owner() const override { return forked ? 0 : ShareProcess::owner(); }
  bool ended(uint64_t owner) const override { return owner == dead; }
  bool hidden(uint64_t owner) const override { return owner == unseen; }

  bool forked = false;
  uint64_t dead = 0;
  uint64_t unseen = 0;
};

class ShareTest : public testing::Test {
 protected:
  ShareMember& add(Rate link = kLink) {
    processes_.push_back(std::make_unique<ScriptedProcess>(processes_.size() + 1));
    members_.push_back(std::make_unique<ShareMember>(*table_, *processes_.back(), "test", link));
    EXPECT_TRUE(members_.back()->join(now_));
    return *members_.back();
  }
  HostLink& link(size_t member) { return members_[member]->outgoing(); }
  void claim_all(const LinkClaim& claim, int times = 1) {
    for (int i = 0; i < times; ++i) {
      for (const auto& member : members_) member->outgoing().claim(now_, claim);
    }
  }
  double gbps(size_t member) { return link(member).part().gbps(); }
  uint64_t generation() const { return table_->generations[0].number.load(); }

  std::unique_ptr<ShareTable> table_ = std::make_unique<ShareTable>();
  std::vector<std::unique_ptr<ScriptedProcess>> processes_;
  std::vector<std::unique_ptr<ShareMember>> members_;
  Instant now_ = kStart;
};

TEST_F(ShareTest, SingleMemberHasTheWholeLink) {
  add();
  EXPECT_EQ(link(0).part(), kLink);
  link(0).claim(now_, wants(10));
  EXPECT_EQ(link(0).part(), kLink);
  EXPECT_EQ(link(0).used_by_others(), Rate());
  EXPECT_EQ(link(0).prospect(1), kLink);
}

TEST_F(ShareTest, RaiseWaitsUntilAnotherPartIsCut) {
  add();
  add();
  link(0).claim(now_, full());
  link(1).claim(now_, full(3));
  EXPECT_LT(gbps(1), 0.1);  // just enough that flows have a rate
  EXPECT_GT(link(1).part().bps(), 0U);
  EXPECT_TRUE(link(0).due(now_));
  link(0).claim(now_, full());
  EXPECT_DOUBLE_EQ(gbps(0), 25);
  EXPECT_TRUE(link(1).due(now_));
  link(1).claim(now_, full(3));
  EXPECT_DOUBLE_EQ(gbps(1), 75);
  EXPECT_DOUBLE_EQ(link(1).used_by_others().gbps(), 25);
}

TEST_F(ShareTest, DirectionsAreIndependent) {
  add();
  add();
  members_[0]->outgoing().claim(now_, full());
  members_[1]->incoming().claim(now_, full());
  EXPECT_EQ(members_[0]->outgoing().part(), kLink);
  EXPECT_EQ(members_[1]->incoming().part(), kLink);
}

TEST_F(ShareTest, UnwantedRateIsDividedByWeight) {
  add();
  add();
  for (int i = 0; i < 3; ++i) {
    link(0).claim(now_, wants(10));
    link(1).claim(now_, wants(30));
  }
  EXPECT_DOUBLE_EQ(gbps(0), 40);
  EXPECT_DOUBLE_EQ(gbps(1), 60);
}

TEST_F(ShareTest, WaitingMemberPollsSoonAndThenLessOften) {
  add();
  add();
  link(0).claim(now_, full());
  link(1).claim(now_, full());
  EXPECT_EQ(link(1).next_deadline(), now_ + Duration::from_us(2));
  for (int i = 0; i < 20; ++i) {
    now_ = link(1).next_deadline();
    EXPECT_TRUE(link(1).due(now_));
    link(1).claim(now_, full());
  }
  EXPECT_EQ(link(1).next_deadline(), now_ + Duration::from_ms(1));
}

TEST_F(ShareTest, SmallChangesAreNotPublished) {
  add();
  link(0).claim(now_, wants(64));
  const uint64_t before = generation();
  link(0).claim(now_, {.demand = Rate::from_bps(64'900'000'000), .weight = 1});
  link(0).claim(now_, {.demand = Rate::from_bps(63'100'000'000), .weight = 1});
  EXPECT_EQ(generation(), before);
  link(0).claim(now_, wants(66));
  EXPECT_GT(generation(), before);
}

TEST_F(ShareTest, MemberWithoutDemandIsNotDue) {
  add();
  add();
  link(0).claim(now_, wants(10));
  link(0).claim(now_, {});
  link(1).claim(now_, full());
  EXPECT_FALSE(link(0).due(now_));
  EXPECT_EQ(link(0).next_deadline(), Instant::never());
  // A ready member, which may begin at any time, must know its prospect.
  link(0).claim(now_, {.demand = {}, .weight = 0, .ready = true});
  EXPECT_EQ(link(0).next_deadline(), Instant::never());
  link(1).claim(now_, wants(20));
  EXPECT_TRUE(link(0).due(now_));
}

TEST_F(ShareTest, SilentMemberCountsAsIdleUntilItClaimsAgain) {
  add();
  add();
  claim_all(full(), 3);
  EXPECT_EQ(link(0).next_deadline(), now_ + Duration::from_ms(10));
  now_ = now_ + Duration::from_ms(51);
  link(1).claim(now_, full());
  EXPECT_EQ(link(1).part(), kLink);
  EXPECT_EQ(link(1).used_by_others(), Rate());
  EXPECT_TRUE(link(0).due(now_));
  link(0).claim(now_, full());
  EXPECT_LT(gbps(0), 0.1);
  claim_all(full(), 2);
  EXPECT_DOUBLE_EQ(gbps(0), 50);
  EXPECT_DOUBLE_EQ(gbps(1), 50);
}

TEST_F(ShareTest, ProspectCountsReadyMembers) {
  for (int i = 0; i < 3; ++i) add();
  link(0).claim(now_, {.demand = {}, .weight = 0, .ready = true});
  link(1).claim(now_, {.demand = Rate::from_gbps(10), .weight = 1, .ready = false});
  EXPECT_DOUBLE_EQ(link(1).prospect(1).gbps(), 50);
  link(2).claim(now_, {});
  EXPECT_DOUBLE_EQ(link(2).prospect(1).gbps(), 45);
  EXPECT_DOUBLE_EQ(link(2).prospect(2).gbps(), 60);
  link(1).claim(now_, {.demand = Rate::from_gbps(40), .weight = 1, .ready = false});
  link(2).claim(now_, {});
  EXPECT_DOUBLE_EQ(link(2).prospect(2).gbps(), 50);
}

TEST_F(ShareTest, MembersDivideTheLargestKnownRate) {
  add();
  add(Rate::from_gbps(50));
  claim_all(full(), 3);
  EXPECT_DOUBLE_EQ(gbps(0), 50);
  EXPECT_DOUBLE_EQ(gbps(1), 50);
  link(0).claim(now_, {});
  link(1).claim(now_, full());
  EXPECT_DOUBLE_EQ(gbps(1), 50);
}

TEST_F(ShareTest, FullTableRefusesAMemberUntilAProcessHasEnded) {
  for (size_t i = 0; i < kShareSlots; ++i) add();
  claim_all(full(), 3);
  EXPECT_NEAR(gbps(0), 100.0 / kShareSlots, 0.05);
  ScriptedProcess late(1000);
  ShareMember member(*table_, late, "late", kLink);
  EXPECT_FALSE(member.join(now_));
  member.outgoing().claim(now_, full());
  EXPECT_DOUBLE_EQ(member.outgoing().part().gbps(), 25);
  late.dead = 7;
  EXPECT_TRUE(member.join(now_));
  // Member 6, wrongly taken for dead, notices that its slot is taken and leaves the slot alone.
  members_[6]->outgoing().claim(now_, full());
  EXPECT_DOUBLE_EQ(gbps(6), 25);
  EXPECT_EQ(table_->slots[6].owner.load(), 1000U);
}

TEST_F(ShareTest, SlotOfAHiddenProcessIsReusedOnlyAfterLongSilence) {
  for (size_t i = 0; i < kShareSlots; ++i) add();
  claim_all(full());
  ScriptedProcess late(1000);
  late.unseen = 9;
  ShareMember member(*table_, late, "late", kLink);
  EXPECT_FALSE(member.join(now_ + Duration::from_s(59)));
  EXPECT_TRUE(member.join(now_ + Duration::from_s(61)));
  EXPECT_EQ(table_->slots[8].owner.load(), 1000U);
}

TEST_F(ShareTest, ActiveMemberFreesSlotsOfEndedProcesses) {
  for (int i = 0; i < 4; ++i) add();
  claim_all({.demand = {}, .weight = 0, .ready = true});
  processes_[0]->dead = 3;
  for (int i = 0; i < 4; ++i) {
    link(0).claim(now_, full());
    now_ = now_ + Duration::from_ms(50);
  }
  EXPECT_EQ(table_->slots[2].owner.load(), 0U);
  EXPECT_EQ(table_->slots[1].owner.load(), 2U);
}

TEST_F(ShareTest, LearntRatesAreEvenedOutByWeight) {
  for (int i = 0; i < 3; ++i) add();
  claim_all(full(), 3);
  link(2).claim(now_, full(2));
  claim_all(full(), 1);
  link(2).claim(now_, full(2));
  const uint64_t before = generation();
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(40)), Rate::from_gbps(40))
      << "no other member has learnt a rate";
  EXPECT_EQ(link(1).fair_part(Rate::from_gbps(4)), Rate::from_gbps(22));
  EXPECT_EQ(link(2).fair_part(Rate::from_gbps(4)), Rate::from_gbps(24)) << "twice the weight";
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(40)), Rate::from_gbps(12));
  EXPECT_EQ(generation(), before) << "no other member becomes due";
  EXPECT_EQ(link(1).fair_part(Rate()), Rate()) << "a member that does not use its part";
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(41)), Rate::from_gbps(15));
  EXPECT_EQ(members_[0]->incoming().fair_part(Rate::from_gbps(7)), Rate::from_gbps(7))
      << "directions are independent, and this one has no demand";
}

TEST_F(ShareTest, LearntRatesOfIdleMembersDoNotCount) {
  add();
  add();
  claim_all(full(), 3);
  link(1).fair_part(Rate::from_gbps(4));
  link(1).claim(now_, {.ready = true});
  link(0).claim(now_, full());
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(40)), Rate::from_gbps(40));
  EXPECT_EQ(link(1).fair_part(Rate::from_gbps(4)), Rate::from_gbps(4));
  EXPECT_EQ(table_->slots[1].directions[0].learnt.load(), 0U);
}

TEST_F(ShareTest, NewMemberOfASlotHasNoLearntRate) {
  add();
  add();
  claim_all(full(), 3);
  link(1).fair_part(Rate::from_gbps(4));
  members_.pop_back();
  processes_.pop_back();
  add();
  claim_all(full(), 3);
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(40)), Rate::from_gbps(40));
}

TEST_F(ShareTest, InvalidWordsGiveBoundedParts) {
  add();
  add();
  claim_all(full(), 3);
  auto& other = table_->slots[5];
  other.owner.store(~uint64_t{0});
  other.capacity.store(~uint64_t{0});
  for (auto& direction : other.directions) {
    direction.claim.store(~uint64_t{0});
    direction.taking.store(~uint64_t{0});
    direction.beat.store(static_cast<uint64_t>(now_.ns()));
    direction.learnt.store(~uint64_t{0});
  }
  table_->slots[0].directions[0].taking.store(~uint64_t{0});
  table_->slots[0].directions[0].claim.store(~uint64_t{0});
  claim_all(full(), 3);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GT(link(i).part().bps(), 0U);
    EXPECT_LE(link(i).part(), kLink);
    EXPECT_LE(link(i).prospect(~0U), kLink);
    EXPECT_LE(link(i).fair_part(Rate::from_bps(~uint64_t{0})), kLink);
  }
  now_ = now_ + Duration::from_ms(51);
  claim_all(full(), 3);
  claim_all(full(), 3);
  EXPECT_DOUBLE_EQ(gbps(0), 50);
  EXPECT_DOUBLE_EQ(gbps(1), 50);
}

TEST_F(ShareTest, ForkedChildChangesNothing) {
  add();
  add();
  claim_all(full(), 3);
  processes_[0]->forked = true;
  const uint64_t before = generation();
  const uint64_t taking = table_->slots[0].directions[0].taking.load();
  link(0).claim(now_ + Duration::from_ms(60), wants(1));
  EXPECT_DOUBLE_EQ(gbps(0), 25);
  EXPECT_EQ(link(0).fair_part(Rate::from_gbps(40)), Rate::from_gbps(40));
  EXPECT_EQ(table_->slots[0].directions[0].learnt.load(), 0U);
  EXPECT_EQ(generation(), before);
  members_.erase(members_.begin());
  EXPECT_EQ(table_->slots[0].owner.load(), 1U);
  EXPECT_EQ(table_->slots[0].directions[0].taking.load(), taking);
}

TEST_F(ShareTest, LeavingMemberFreesItsPart) {
  add();
  add();
  claim_all(full(), 3);
  members_.erase(members_.begin());
  EXPECT_TRUE(members_[0]->outgoing().due(now_));
  members_[0]->outgoing().claim(now_, full());
  EXPECT_EQ(members_[0]->outgoing().part(), kLink);
}

// Counts the accesses to shared memory.
struct CountedWord : std::atomic<uint64_t> {
  static inline uint64_t accesses = 0;
  uint64_t load() const {
    ++accesses;
    return std::atomic<uint64_t>::load();
  }
  void store(uint64_t value) {
    ++accesses;
    std::atomic<uint64_t>::store(value);
  }
  uint64_t fetch_add(uint64_t more) {
    ++accesses;
    return std::atomic<uint64_t>::fetch_add(more);
  }
};

TEST(ShareCost, PollTakesOneLoadOrNoneWithoutADemand) {
  const auto table = std::make_unique<BasicShareTable<CountedWord>>();
  const ShareProcess process(1);
  BasicShareMember<CountedWord> member(*table, process, "counted", kLink);
  HostLink& link = member.outgoing();
  link.claim(kStart, full());
  CountedWord::accesses = 0;
  EXPECT_FALSE(link.due(kStart));
  EXPECT_EQ(CountedWord::accesses, 1U);
  link.claim(kStart, {});
  CountedWord::accesses = 0;
  EXPECT_FALSE(link.due(kStart + Duration::from_s(1)));
  EXPECT_EQ(link.next_deadline(), Instant::never());
  EXPECT_EQ(CountedWord::accesses, 0U);
}

TEST(ClaimWord, AnyBitsDecodeToAClaim) {
  const LinkClaim most = ClaimWord::decode(~uint64_t{0});
  EXPECT_EQ(most.demand.bps(), ClaimWord::kMostDemand);
  EXPECT_EQ(most.weight, ClaimWord::kMostWeight);
  const LinkClaim claim{.demand = Rate::from_gbps(800), .weight = 4096 * 64, .ready = true};
  EXPECT_EQ(ClaimWord::decode(ClaimWord::encode(claim)), claim);
  const LinkClaim large{.demand = Rate::from_bps(~uint64_t{0}), .weight = ~0U, .ready = false};
  EXPECT_EQ(ClaimWord::decode(ClaimWord::encode(large)).demand.bps(), ClaimWord::kMostDemand);
}

}  // namespace
}  // namespace pacecar::share_link_test
