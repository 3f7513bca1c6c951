// A classic pcap file (nanosecond time stamps) of UDP datagrams, which tcpdump, tshark and
// Wireshark read. Ethernet, IP and UDP headers are made up from the end points. When the file
// cannot be written any more (a full disk), recording ends without an error. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/wire/packet.h"

namespace pacecar {

// The UDP destination port that dissectors take for RoCEv2.
inline constexpr uint16_t kRoceV2Port = 4791;

// What the made-up headers of a datagram are made from.
struct PcapEndpoints {
  Address source;
  Address destination;
  Ecn ecn = Ecn::kNotCapable;
  uint32_t ipv4_fragment = kIpv4Fragment;
};

class PcapWriter {
 public:
  // Overwrites the file and keeps at most `snap_bytes` of each packet. Errors: kSystem, naming it.
  static Result<PcapWriter> create(const std::string& path, Bytes snap_bytes);

  // False after a failed write; then write() does nothing.
  bool good() const { return file_ != nullptr; }
  // The datagram's parts are gathered in this order.
  void write(Instant now, const PcapEndpoints& ends,
             std::span<const std::span<const uint8_t>> parts);

 private:
  struct FileClose {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, FileClose>;

  PcapWriter(File file, Bytes snap_bytes) : file_(std::move(file)), snap_bytes_(snap_bytes) {}

  File file_;
  Bytes snap_bytes_;
  std::vector<uint8_t> frame_;
};

}  // namespace pacecar
