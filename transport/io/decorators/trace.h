// A decorator that writes one line of text per packet:
//   "12.345678901 tx 192.0.2.1:18515 path 3 data 8236 B c0 80 ff ff ..."
// The line ends with the first bytes of the datagram. The time is the caller's `now`. A packet is
// written when send() takes it or receive() returns it.
//
// For tests and fault-finding: formatting allocates. Thread rule: as PacketIo.
#pragma once

#include <cstdio>
#include <memory>

#include "transport/base/log.h"
#include "transport/io/packet_io.h"

namespace pacecar {

// Lines go to `sink` at level kTrace.
std::unique_ptr<PacketIo> trace_packets(std::unique_ptr<PacketIo> inner, LogSink sink);

// A sink that writes to `file`, which must outlive it.
LogSink log_to(std::FILE* file);

}  // namespace pacecar
