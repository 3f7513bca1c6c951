// Samples a run at intervals: the queues of the switches, the rates of the largest flows and what
// limits them. Memory is bounded: when a series is full, every second sample is dropped, and the
// interval doubles. Thread rule: one thread.
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
  struct WatchedFlow {
    std::string name;
    size_t flow = 0;  // index into the flows
    uint32_t source = 0;
    uint32_t destination = 0;
    std::function<Explanation()> explain;
  };

  // `loop`, `fabric` and `spec` outlive the monitor.
  Monitor(EventLoop& loop, Fabric& fabric, const RunSpec& spec, std::vector<WatchedFlow> flows);

  // Time 0 is now: what links have sent before does not count. The first sample is taken at once.
  void begin();
  // Fills links, queues, rates, limits, and the figures that are computed from them.
  void finish(RunResult& result) const;

  void on_event(Instant now, uint32_t what) override;

 private:
  struct Limits {  // small: there are many
    float allowed = 0;
    float grant = 0;
    float core = 0;
    LimitedBy limited_by{};
  };

  void sample();
  void halve();
  void end_warm_up();
  Series queue_series(size_t port) const;
  Series rate_series(size_t flow) const;
  LimitSeries limit_series(size_t flow) const;
  double mean_bps(uint32_t cable, Duration from, Duration until) const;

  EventLoop& loop_;
  Fabric& fabric_;
  const Topology& topology_;
  const std::vector<FaultEvent>& faults_;
  const SamplingSpec& sampling_;
  std::vector<WatchedFlow> flows_;
  EventLoop::TimerId timer_;
  Duration interval_;
  size_t points_ = 0;              // most samples of a series
  std::vector<LinkId> ports_;      // of switches
  std::vector<LinkStats> before_;  // by link, at time 0
  EventLoop::TimerId warm_timer_;
  std::vector<Bytes> sent_before_;        // by link, until the end of the warm-up
  std::vector<Bytes> queues_of_warm_up_;  // the longest, by link; empty until it is over
  size_t samples_ = 0;
  std::vector<uint32_t> queues_;  // [sample][port]
  std::vector<Bytes> arrived_;    // [sample][flow]
  std::vector<Limits> limits_;    // [sample][flow]
};

}  // namespace pacecar
