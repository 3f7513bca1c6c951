// SwitchTraces: reads what switches did to data packets: trimming, telemetry. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/base/telemetry.h"
#include "transport/wire/packet.h"

namespace pacecar {

class SwitchTraces {
 public:
  // Sets `trimmed` and `telemetry` of the packets, and removes the telemetry from their bytes.
  // The telemetry is valid until the next read().
  void read(std::span<RxPacket> packets);

 private:
  void read_telemetry(RxPacket& packet, size_t most);

  std::vector<std::array<TelemetryHop, kMaxTelemetryHops>> hops_;
  size_t used_ = 0;  // of hops_
};

}  // namespace pacecar
