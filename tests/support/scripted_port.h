// A switch port whose telemetry follows a script.
#pragma once

#include <cstdint>

#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar::test {

class ScriptedPort {
 public:
  // The counters start at any value, because they wrap.
  explicit ScriptedPort(Rate rate)
      : rate_(rate),
        hop_{.time_ns = UINT32_MAX - 1000,
             .sent_bytes = UINT32_MAX - 1000,
             .rate_mbps = static_cast<uint32_t>(rate.bps() / 1'000'000)} {}

  // The record `time` later; the port was busy for `percent` of that time.
  TelemetryHop after(Duration time, uint64_t percent, uint32_t queue_bytes) {
    hop_.time_ns += static_cast<uint32_t>(time.ns());
    hop_.sent_bytes += static_cast<uint32_t>(rate_.bytes_in(time) * percent / 100);
    hop_.queue_bytes = queue_bytes;
    return hop_;
  }

 private:
  Rate rate_;
  TelemetryHop hop_;
};

}  // namespace pacecar::test
