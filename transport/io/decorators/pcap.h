// A decorator that records every datagram in a pcap file, as PcapWriter does. UDP's destination
// port is shown as 4791, so that tools dissect RoCEv2. Time stamps are the caller's `now`. For
// tests and fault-finding: writes a file on the data path. Thread rule: as PacketIo.
#pragma once

#include <memory>
#include <string>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace pacecar {

// Overwrites the file at `path`. A packet is recorded when send() takes it or receive() returns it.
// A file that can no longer be written is a warning.
Result<std::unique_ptr<PacketIo>> record_packets(std::unique_ptr<PacketIo> inner,
                                                 const std::string& path, const LogSink& log);

}  // namespace pacecar
