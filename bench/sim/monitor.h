// Looks at a run from time to time: how long the queues of the switches are, how fast the largest
// flows go. Memory is bounded: when a series is full, every second sample is dropped and samples
// are taken half as often from then on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/sim/run_result.h"
#include "bench/sim/run_spec.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"

namespace pacecar {

class Monitor final : public EventSink {
 public:
  // A flow that is watched: its name, and how many payload bytes are acknowledged so far.
  struct WatchedFlow {
    std::string name;
    std::function<Bytes()> acknowledged;
  };

  // All outlive the monitor.
  Monitor(EventLoop& loop, const Fabric& fabric, const Topology& topology,
          const SamplingSpec& sampling, std::vector<WatchedFlow> flows);

  // Time 0 is now: what links have done before does not count. The first sample is taken at once.
  void begin();
  // Fills links, queues, rates and what follows from them.
  void finish(RunResult& result) const;

  void on_event(Instant now, uint32_t what) override;

 private:
  void sample();
  void halve();
  Series queue_series(size_t port) const;
  double queue_percentile(LinkId link, double percent) const;

  EventLoop& loop_;
  const Fabric& fabric_;
  const Topology& topology_;
  SamplingSpec sampling_;
  std::vector<WatchedFlow> flows_;
  EventLoop::TimerId timer_;
  Duration interval_;
  size_t points_ = 0;              // most samples
  std::vector<LinkId> ports_;      // of switches
  std::vector<LinkStats> before_;  // by link, at time 0
  EventLoop::TimerId warm_timer_;
  std::vector<Bytes> sent_before_;  // by link, until the end of the warm-up
  size_t samples_ = 0;
  std::vector<uint32_t> queues_;     // [sample][port]
  std::vector<Bytes> acknowledged_;  // [sample][flow]
};

}  // namespace pacecar
