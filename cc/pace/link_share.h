// LinkShare: the sender's half of the division of edge links. The flows of one NIC that have
// something to send share its link by weighted max-min, each up to what its receiver and the core
// let it have:
//
//   sum of min(w_f * lambda, limit_f) = C;  limit_f = min(g_f, c_f)
//
// Cost: O(log) per change of a limit; O(active flows) when lambda has moved by more than the
// tolerance. Pure; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cc/pace/water_fill.h"
#include "transport/base/units.h"
#include "transport/base/work_list.h"

namespace pacecar {

class LinkShare {
 public:
  LinkShare(Rate line_rate, uint32_t max_flows, double tolerance);

  // `limit` 0: the flow has nothing to send.
  void set(uint32_t flow, Rate limit, uint32_t weight);

  // What the link gives the flow, and what it would give if its limit were higher; in bit/s.
  double share(uint32_t flow) const;
  double usable(uint32_t flow) const;

  size_t active() const { return active_.size(); }
  // The network was found clear lately.
  void note_clear(Instant now) { clear_ = now; }
  Instant clear_since() const { return clear_; }
  // How many times a flow has become active.
  uint32_t turns() const { return turns_; }
  // All that are active have to be looked at.
  void touch_all();
  size_t poll_changed(std::span<uint32_t> flows);

 private:
  static constexpr uint32_t kInactive = UINT32_MAX;
  struct Member {
    Rate limit;
    uint32_t weight = 1;
    uint32_t position = kInactive;
  };

  // The one that caused it knows already.
  void look(uint32_t causer);

  const double line_;
  const double tolerance_;
  WaterFill fill_;
  std::vector<Member> members_;
  std::vector<uint32_t> active_;
  WorkList changed_;
  Instant clear_;  // when the network was found so last
  uint32_t turns_ = 0;
  double level_ = WaterFill::kNoLevel;
  double spare_ = 0;  // of the link when all limits are met
  double told_ = 0;   // level or spare when all were touched last
};

}  // namespace pacecar
