// Records what comes out of one link of a simulated fabric in a pcap file. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/decorators/pcap_writer.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class LinkCapture {
 public:
  // `processes`: of each host.
  LinkCapture(PcapWriter writer, const FabricConfig& config, uint32_t processes)
      : writer_(std::move(writer)),
        processes_(processes),
        carries_payload_(config.payload == PayloadMode::kBytes),
        zeros_(config.hosts.datagram_bytes) {}

  void record(Instant now, const FabricPacket& packet);

 private:
  PcapWriter writer_;
  uint32_t processes_;
  bool carries_payload_;
  std::vector<uint8_t> zeros_;
};

}  // namespace pacecar
