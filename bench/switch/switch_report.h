// The figures of a live switch, of each interval and of the whole time, as text and as JSON.
// Thread rule: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/switch/live_switch.h"
#include "transport/base/histogram.h"
#include "transport/base/units.h"

namespace pacecar {

class SwitchReport {
 public:
  SwitchReport(LiveSwitch& live, Instant begin);

  // Ends the interval that began when the last one ended. Returns its lines, one per port.
  std::string end_interval(Instant now);
  // Of the whole time, up to the last end_interval().
  std::string summary() const;
  nlohmann::json to_json() const;

 private:
  struct Port {
    std::string name;
    PortCounts last;        // since the begin, without samples
    Histogram queue_bytes;  // of the whole time
    Bytes queue_max_bytes = 0;
  };

  nlohmann::json ports_json() const;  // of the whole time

  LiveSwitch& live_;
  Instant begin_;
  Instant end_;
  std::vector<Port> ports_;
  std::vector<nlohmann::json> intervals_;
};

}  // namespace pacecar
