// Who drives a NIC: the application's threads that call, or a thread of ours, the keeper, while
// they do not. The state of one keeper, which decides from the times of calls and turns.
//                    called lately                    nothing moved for `spin`
//         +------------------------------+        +------------------------------+
//         v                              |        |                              v
//     kCallers --- no call lately ---> kKeeper ---+                           kNobody
//      |    ^                            ^                                     |   ^
//      |    |                            +-------- woken ----------------------+   |
//      |    +----- lead is over -----+----> kKeeper, if     (to kLeading in a lead) |
//      |                             |      nobody calls                           |
//      |                             |                                             |
//      +-- callers leave work ---> kLeading ------- nothing moved for `spin` ------+
// A keeper that its callers do not need goes from kCallers to kNobody, too.
// Pure: time is an argument. Thread rule: the keeper's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

enum class Driving : uint8_t {
  kCallers,  // callers take turns; the keeper naps, and looks in between
  kKeeper,   // the keeper takes turns until the next call
  kLeading,  // the keeper takes turns, calls or not
  kNobody,   // nothing is due: the keeper sleeps until it is woken
};

enum class Turn : uint8_t {
  kBusy,   // not taken: another thread is at it
  kIdle,   // there was nothing to do
  kMoved,  // something arrived or left
};

struct ProgressPolicy {
  bool always = false;   // the keeper takes all turns
  Duration patience;     // callers that have called within this time are trusted to call again
  Duration nap;          // while callers take turns; each nap is twice as long as the last, up to
  Duration longest_nap;  // this
  Duration spin;         // after something has moved, the keeper polls at least this long
  // For callers that may call for something else and poll memory: how long the keeper leads after
  // it has found work that they had left. Found soon afterwards, it leads for twice as long.
  Duration first_lead;
  Duration longest_lead;
};

class ProgressState {
 public:
  explicit ProgressState(const ProgressPolicy& policy) : policy_(policy), nap_(policy.nap) {}

  // The keeper's role for its next act. `entered`: callers take turns all the time, also in a lead.
  Driving decide(Instant last_call, bool entered, Instant now) {
    if (state_ == Driving::kNobody) return state_;
    if (state_ == Driving::kLeading && now < leads_until_ && !entered) return state_;
    const bool called = !policy_.always && (entered || now - last_call < policy_.patience);
    const Driving next = called ? Driving::kCallers : Driving::kKeeper;
    if (next != state_) nap_ = policy_.nap;
    if (state_ == Driving::kCallers) last_moved_ = now;
    state_ = next;
    return state_;
  }
  // In kCallers: how long it naps before it looks again.
  Duration next_nap() {
    const Duration nap = nap_;
    nap_ = std::min(nap_ * 2, policy_.longest_nap);
    ++naps_;
    return nap;
  }
  // In kCallers: whatever the callers do, the keeper sleeps until it is woken.
  void on_not_needed() { state_ = Driving::kNobody; }
  // A turn in kKeeper or kLeading.
  void on_turn(Turn turn, Instant now) {
    if (turn == Turn::kMoved) last_moved_ = now;
    if (turn == Turn::kIdle && now - last_moved_ >= policy_.spin) state_ = Driving::kNobody;
  }
  // A turn in kCallers, which callers seem to have left.
  void on_late_turn(Turn turn, Instant now) {
    nap_ = policy_.nap;
    if (turn != Turn::kMoved) return;
    lead_ = naps_ > kTrialNaps ? policy_.first_lead
                               : std::clamp(lead_ * 2, policy_.first_lead, policy_.longest_lead);
    naps_ = 0;
    leads_until_ = now + lead_;
    last_moved_ = now;
    state_ = Driving::kLeading;
  }
  void on_woken(Instant now) { state_ = now < leads_until_ ? Driving::kLeading : Driving::kKeeper; }
  // Callers come first, if one is at it.
  bool gives_way() const { return state_ == Driving::kKeeper && !policy_.always; }
  Duration idle(Instant now) const { return now - last_moved_; }

 private:
  static constexpr int kTrialNaps = 3;

  ProgressPolicy policy_;
  Driving state_ = Driving::kCallers;
  Instant last_moved_;
  Duration nap_;
  int naps_ = 0;  // since it led
  Duration lead_;
  Instant leads_until_;
};

}  // namespace pacecar
