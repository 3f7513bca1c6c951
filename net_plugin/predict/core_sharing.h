// What is different where flows meet in the core of a network: no receiver divides those links,
// each sender learns by itself what they carry. So shares are uneven, and a queue stands. Pure.
#pragma once

#include <span>
#include <vector>

#include "net_plugin/predict/fluid.h"
#include "net_plugin/predict/max_min.h"

namespace pacecar::predict {

// Its part of a full link of the core beside others' of about 1: the same for the same number.
double uneven_weight(uint32_t flow);

// How long a packet waits at each link of the core.
class CoreQueues {
 public:
  // `links` outlive it.
  explicit CoreQueues(std::span<const Link> links);

  void begin();  // of an update: a call of add() follows for each flow that sends
  void add(const Flow& flow, const Allotment& share);
  // On all of a way.
  double delay_s(const Route& route) const;

 private:
  struct Queue {
    double used = 0;         // bytes per second of flows that last
    double packet_s = 0;     // theirs
    double tolerated_s = 0;  // the most that one of them does
    bool full = false;       // of them
  };

  std::span<const Link> links_;
  std::vector<uint32_t> core_;  // links
  std::vector<Queue> queues_;   // by link
};

}  // namespace pacecar::predict
