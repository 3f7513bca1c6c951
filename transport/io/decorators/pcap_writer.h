// A classic pcap file (nanosecond time stamps) of UDP datagrams, which tcpdump, tshark and
// Wireshark read. Ethernet, IP and UDP headers are made up from the end points. When the file can
// no longer be written (a full disk), recording ends, and close() says why. One thread at a time.
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
  Result<void> close();  // Errors: kSystem, also for a write() that failed.

 private:
  struct FileClose {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, FileClose>;

  void flush();
  PcapWriter(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;
  int error_ = 0;  // of the write that failed
  std::vector<uint8_t> frame_;
};

}  // namespace pacecar
