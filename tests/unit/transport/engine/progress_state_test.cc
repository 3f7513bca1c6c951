// Who drives: the state of a keeper in every short sequence of calls, turns and times; and how it
// falls asleep, in every interleaving with the steps of a thread that submits.
#include "transport/engine/progress_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/model/chooser.h"

namespace pacecar::progress_state_test {
namespace {

constexpr ProgressPolicy kPolicy{.patience = Duration::from_us(100),
                                 .nap = Duration::from_us(100),
                                 .longest_nap = Duration::from_us(400),
                                 .spin = Duration::from_us(200),
                                 .first_lead = Duration::from_us(1000),
                                 .longest_lead = Duration::from_us(4000)};

// One keeper, whose steps follow each other; what callers and the NIC do in between is chosen.
class KeeperRun {
 public:
  KeeperRun(const ProgressPolicy& policy, model::Chooser& chooser)
      : policy_(policy), state_(policy), chooser_(chooser) {}

  // What does not hold; empty: all does.
  std::string run(int steps) {
    for (int i = 0; i < steps; ++i) {
      // At once, within patience, beyond patience and the longest nap, or beyond all leads.
      constexpr std::array<int64_t, 4> kSteps = {1, 60, 500, 10'000};
      now_ = now_ + Duration::from_us(kSteps[chooser_.choose(kSteps.size())]);
      if (chooser_.choose(2) == 1) last_call_ = now_;
      if (std::string wrong = step(); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  std::string step() {
    const bool called = !policy_.always && now_ - last_call_ < policy_.patience;
    switch (state_.decide(last_call_, false, now_)) {
      case Driving::kCallers:
        if (!called) return "naps although nobody calls";
        if (state_.next_nap() > policy_.longest_nap) return "naps too long";
        if (policy_.first_lead > Duration() && chooser_.choose(2) == 1) {
          const Turn turn = any_turn();
          state_.on_late_turn(turn, now_);
          if (turn == Turn::kMoved) leads_until_ = now_ + policy_.longest_lead;
          if (turn == Turn::kMoved) idle_since_ = now_;
        }
        idle_since_ = now_;
        return "";
      case Driving::kKeeper:
        if (called) return "takes turns although callers do";
        return take_turn();
      case Driving::kLeading:
        if (now_ >= leads_until_) return "leads for too long";
        return take_turn();
      case Driving::kNobody:
        if (now_ - idle_since_ < policy_.spin) return "sleeps too early";
        state_.on_woken(now_);
        return "";
    }
    return "no state";
  }
  Turn any_turn() { return static_cast<Turn>(chooser_.choose(3)); }
  std::string take_turn() {
    const Turn turn = any_turn();
    state_.on_turn(turn, now_);
    if (turn == Turn::kMoved) idle_since_ = now_;
    return "";
  }

  const ProgressPolicy policy_;
  ProgressState state_;
  model::Chooser& chooser_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant last_call_;
  Instant idle_since_;
  Instant leads_until_;
};

TEST(ProgressState, SomebodyDrivesInEverySequence) {
  for (const bool always : {false, true}) {
    for (const Duration lead : {Duration(), kPolicy.first_lead}) {
      ProgressPolicy policy = kPolicy;
      policy.always = always;
      policy.first_lead = lead;
      model::EveryChoice chooser(0);
      uint64_t runs = 0;
      do {
        KeeperRun run(policy, chooser);
        ASSERT_EQ(run.run(4), "") << "run " << runs;
        ++runs;
      } while (chooser.next());
      EXPECT_GT(runs, 4096U);
    }
  }
}

TEST(ProgressState, LeadsLongerIfCallersLeaveWorkAgain) {
  ProgressState state(kPolicy);
  Instant now = Instant::from_ns(1'000'000'000);
  for (const int64_t lead_us : {1000, 2000, 4000, 4000}) {
    ASSERT_EQ(state.decide(now, false, now), Driving::kCallers);
    state.next_nap();
    state.on_late_turn(Turn::kMoved, now);
    now = now + Duration::from_us(lead_us - 1);
    EXPECT_EQ(state.decide(now, false, now), Driving::kLeading) << lead_us;
    now = now + Duration::from_us(1);
  }
}

TEST(ProgressState, LeadsLongerAlsoIfALeadEndsAsleep) {
  ProgressState state(kPolicy);
  Instant now = Instant::from_ns(1'000'000'000);
  ASSERT_EQ(state.decide(now, false, now), Driving::kCallers);
  for (int i = 0; i < 10; ++i) state.next_nap();
  state.on_late_turn(Turn::kMoved, now);
  now = now + kPolicy.spin;
  ASSERT_EQ(state.decide(now, false, now), Driving::kLeading);
  state.on_turn(Turn::kIdle, now);
  ASSERT_EQ(state.decide(now, false, now), Driving::kNobody);
  now = now + kPolicy.longest_lead;
  state.on_woken(now);
  ASSERT_EQ(state.decide(now, false, now), Driving::kCallers);
  state.next_nap();
  state.on_late_turn(Turn::kMoved, now);
  const Duration second = kPolicy.first_lead * 2;
  now = now + second - Duration::from_us(1);
  EXPECT_EQ(state.decide(now, false, now), Driving::kLeading);
}

// --- falling asleep: ProgressDriver::sleep() against a thread that submits ---

struct World {
  enum class Keeper : uint8_t { kExpects, kAnnounces, kLooks, kSleeps, kWakes, kTakesTurn };
  enum class Caller : uint8_t { kSubmits, kLooks, kRings, kGone };
  Keeper keeper = Keeper::kExpects;
  Caller caller = Caller::kSubmits;
  bool submitted = false;
  bool announced = false;  // asleep_until_ns_
  bool expected = false;   // state of the Doorbell
  bool rung = false;       // its descriptor

  auto operator<=>(const World&) const = default;
};

// All worlds that one step of a thread leads to.
std::vector<World> next_worlds(const World& world) {
  std::vector<World> next;
  World one = world;
  switch (world.keeper) {
    case World::Keeper::kExpects:
      one.expected = true;
      one.keeper = World::Keeper::kAnnounces;
      break;
    case World::Keeper::kAnnounces:
      one.announced = true;
      one.keeper = World::Keeper::kLooks;
      break;
    case World::Keeper::kLooks:
      one.keeper = world.submitted ? World::Keeper::kWakes : World::Keeper::kSleeps;
      break;
    case World::Keeper::kSleeps:
      if (world.rung) one.keeper = World::Keeper::kWakes;
      break;
    case World::Keeper::kWakes:
      one.announced = one.expected = one.rung = false;
      one.keeper = World::Keeper::kTakesTurn;
      break;
    case World::Keeper::kTakesTurn:
      one.submitted = false;
      one.keeper = World::Keeper::kExpects;
      break;
  }
  if (one != world) next.push_back(one);
  one = world;
  switch (world.caller) {
    case World::Caller::kSubmits:
      one.submitted = true;
      one.caller = World::Caller::kLooks;
      break;
    case World::Caller::kLooks:
      one.caller = world.announced ? World::Caller::kRings : World::Caller::kGone;
      break;
    case World::Caller::kRings:
      if (world.expected) one.rung = true;
      one.expected = false;
      one.caller = World::Caller::kGone;
      break;
    case World::Caller::kGone: break;
  }
  if (one != world) next.push_back(one);
  return next;
}

TEST(ProgressState, NoSubmissionIsSleptThrough) {
  std::set<World> seen;
  std::vector<World> left{World()};
  while (!left.empty()) {
    const World world = left.back();
    left.pop_back();
    if (!seen.insert(world).second) continue;
    const std::vector<World> next = next_worlds(world);
    EXPECT_TRUE(!next.empty() || !world.submitted) << "all rest, and a submission waits";
    left.insert(left.end(), next.begin(), next.end());
  }
  EXPECT_GT(seen.size(), 20U);
}

}  // namespace
}  // namespace pacecar::progress_state_test
