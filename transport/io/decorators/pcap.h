// A decorator that records every datagram in a classic pcap file (nanosecond time stamps), which
// tcpdump, tshark and Wireshark read. Ethernet, IP and UDP headers are made up from what a PacketIo
// knows.
// The time stamps are the caller's. For tests and fault-finding: writes a file on the data path.
#pragma once

#include <memory>
#include <string>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace pacecar {

struct PcapConfig {
  std::string path;           // of the file, overwritten
  bool as_roce_v2 = false;    // show the destination port as 4791, so that RoCEv2 is dissected
  Bytes snap_bytes = 65'535;  // how much of each packet is kept
};

// Packets are recorded when taken by send() or handed out by receive(). When the file cannot be
// written any more (a full disk), recording ends and the traffic goes on.
Result<std::unique_ptr<PacketIo>> record_packets(std::unique_ptr<PacketIo> inner,
                                                 const PcapConfig& config);

}  // namespace pacecar
