// Samples a run at intervals: the queues of the switches, the rates of the largest flows and what
// limits them. Memory is bounded: when a series is full, every second sample is dropped, and the
// interval doubles. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/run_spec.h"
#include "bench/sim/traffic.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"

namespace pacecar {

class Monitor final : public EventSink {
 public:
  // `flows`: indices of the workload's flows to sample. The other arguments outlive the monitor.
  Monitor(EventLoop& loop, Fabric& fabric, const RunSpec& spec, const Traffic& traffic,
          std::vector<uint32_t> flows);

  // Time 0 is now. The first sample is taken at once.
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
  struct Sample {
    std::vector<uint32_t> queues;  // bytes, by port
    std::vector<Bytes> arrived;    // by flow
    std::vector<Limits> limits;    // by flow
  };

  void sample();
  void halve();
  void end_warm_up();
  std::string name_of(size_t flow) const;
  Series queue_series(size_t port) const;
  Series rate_series(size_t flow) const;
  LimitSeries limit_series(size_t flow) const;
  double mean_bps(uint32_t cable, Duration from, Duration until) const;

  EventLoop& loop_;
  Fabric& fabric_;
  const RunSpec& spec_;
  const Traffic& traffic_;
  std::vector<uint32_t> flows_;
  EventLoop::TimerId timer_;
  Duration interval_;
  size_t points_ = 0;          // most samples of a series
  std::vector<LinkId> ports_;  // of switches
  EventLoop::TimerId warm_timer_;
  std::vector<Bytes> sent_before_;        // by link, until the end of the warm-up
  std::vector<Bytes> queues_of_warm_up_;  // the longest, by link; empty until it is over
  std::vector<Sample> samples_;
};

}  // namespace pacecar
