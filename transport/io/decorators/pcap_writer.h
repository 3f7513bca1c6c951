// A classic pcap file (nanosecond time stamps) of UDP datagrams, which tcpdump, tshark and
// Wireshark read. Ethernet, IP and UDP headers are made up from the end points. When the file can
// no longer be written (a full disk), recording ends without an error.
//
// Thread rule: one thread at a time.
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

// The input of the made-up headers of a datagram.
struct PcapEndpoints {
  Address source;
  Address destination;
  Ecn ecn = Ecn::kNotCapable;
  uint32_t ipv4_fragment = kIpv4Fragment;
};

class PcapWriter {
 public:
  // Overwrites the file. Errors: kSystem, which names the file.
  static Result<PcapWriter> create(const std::string& path);

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

  explicit PcapWriter(File file) : file_(std::move(file)) {}

  File file_;
  std::vector<uint8_t> frame_;
};

}  // namespace pacecar
