#include "transport/io/decorators/pcap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "transport/io/decorators/decorator.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr uint16_t kRoceV2Port = 4791;
constexpr uint16_t kPathPortBase = 0xC000;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint8_t kHopLimit = 64;
constexpr size_t kEthernetBytes = 14;
constexpr size_t kUdpBytes = 8;
constexpr uint32_t kPcapMagicNs = 0xA1B23C4D;  // draft-ietf-opsawg-pcap: time stamps in nanoseconds
constexpr uint32_t kLinkTypeEthernet = 1;

// The ones' complement sum of RFC 1071 over big-endian 16-bit words; `sum` continues an earlier
// one.
uint32_t add_words(uint32_t sum, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += static_cast<uint32_t>(i % 2 == 0 ? bytes[i] << 8 : bytes[i]);
  }
  return sum;
}

uint16_t fold(uint32_t sum) {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// What the headers of a frame are made from.
struct Endpoints {
  Address source;
  Address destination;
  uint8_t traffic_class;
};

// Builds frames in a buffer of its own.
class Frame {
 public:
  void begin(const Endpoints& ends, size_t datagram_bytes);
  void append(std::span<const uint8_t> part) {
    bytes_.insert(bytes_.end(), part.begin(), part.end());
  }
  std::span<const uint8_t> finish();

 private:
  void put8(uint8_t value) { bytes_.push_back(value); }
  void put16(size_t value) {
    put8(static_cast<uint8_t>(value >> 8));
    put8(static_cast<uint8_t>(value));
  }
  void set16(size_t at, uint16_t value) {
    bytes_[at] = static_cast<uint8_t>(value >> 8);
    bytes_[at + 1] = static_cast<uint8_t>(value);
  }
  void put_ipv4(const Endpoints& ends, size_t udp_bytes);
  void put_ipv6(const Endpoints& ends, size_t udp_bytes);

  std::vector<uint8_t> bytes_;
  size_t udp_at_ = 0;
  size_t address_bytes_ = 0;  // both IP addresses, which lie right before the UDP header
};

void Frame::put_ipv4(const Endpoints& ends, size_t udp_bytes) {
  const size_t start = bytes_.size();
  put8(0x45);  // version 4, five words
  put8(ends.traffic_class);
  put16(20 + udp_bytes);
  put16(0);
  put16(0x4000);  // don't fragment
  put8(kHopLimit);
  put8(kProtocolUdp);
  put16(0);  // checksum, below
  append(std::span(ends.source.ip).subspan(12));
  append(std::span(ends.destination.ip).subspan(12));
  set16(start + 10, fold(add_words(0, std::span(bytes_).subspan(start))));
  address_bytes_ = 8;
}

void Frame::put_ipv6(const Endpoints& ends, size_t udp_bytes) {
  put16(0x6000 | ends.traffic_class << 4);
  put16(0);  // flow label
  put16(udp_bytes);
  put8(kProtocolUdp);
  put8(kHopLimit);
  append(ends.source.ip);
  append(ends.destination.ip);
  address_bytes_ = 32;
}

void Frame::begin(const Endpoints& ends, size_t datagram_bytes) {
  const size_t udp_bytes = kUdpBytes + datagram_bytes;
  const bool ipv4 = is_ipv4(ends.source);
  bytes_.assign(kEthernetBytes - 2, 0);  // no MAC addresses
  put16(ipv4 ? 0x0800 : 0x86DD);
  if (ipv4) {
    put_ipv4(ends, udp_bytes);
  } else {
    put_ipv6(ends, udp_bytes);
  }
  udp_at_ = bytes_.size();
  put16(ends.source.port);
  put16(ends.destination.port);
  put16(udp_bytes);
  put16(0);  // checksum, when all is there
}

std::span<const uint8_t> Frame::finish() {
  const auto udp = std::span<const uint8_t>(bytes_).subspan(udp_at_);
  const auto addresses =
      std::span<const uint8_t>(bytes_).subspan(udp_at_ - address_bytes_, address_bytes_);
  const uint32_t pseudo = add_words(kProtocolUdp + static_cast<uint32_t>(udp.size()), addresses);
  const uint16_t checksum = fold(add_words(pseudo, udp));
  set16(udp_at_ + 6, checksum == 0 ? 0xFFFF : checksum);  // 0 means "none" (RFC 768)
  return bytes_;
}

struct FileClose {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileClose>;

bool write_words(std::FILE* file, std::span<const uint32_t> words) {
  return std::fwrite(words.data(), sizeof(uint32_t), words.size(), file) == words.size();
}

class PcapIo final : public PacketIoDecorator {
 public:
  PcapIo(std::unique_ptr<PacketIo> inner, const PcapConfig& config, File file)
      : PacketIoDecorator(std::move(inner)), config_(config), file_(std::move(file)) {}

  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  void begin(Endpoints ends, size_t datagram_bytes);
  void write(Instant now);

  PcapConfig config_;
  File file_;  // null after a failed write
  Frame frame_;
};

void PcapIo::begin(Endpoints ends, size_t datagram_bytes) {
  if (config_.as_roce_v2) ends.destination.port = kRoceV2Port;
  frame_.begin(ends, datagram_bytes);
}

void PcapIo::write(Instant now) {
  const auto frame = frame_.finish();
  const auto kept = frame.first(std::min<size_t>(frame.size(), config_.snap_bytes));
  const std::array<uint32_t, 4> record = {static_cast<uint32_t>(now.ns() / 1'000'000'000),
                                          static_cast<uint32_t>(now.ns() % 1'000'000'000),
                                          static_cast<uint32_t>(kept.size()),
                                          static_cast<uint32_t>(frame.size())};
  if (!write_words(file_.get(), record) ||
      std::fwrite(kept.data(), 1, kept.size(), file_.get()) != kept.size()) {
    file_.reset();
  }
}

size_t PcapIo::send(std::span<const TxPacket> packets, Instant now) {
  const size_t taken = inner().send(packets, now);
  for (const TxPacket& packet : packets.first(taken)) {
    if (file_ == nullptr) break;
    Address source = local_address();
    source.port = static_cast<uint16_t>(kPathPortBase + packet.path);
    begin({source, *packet.destination, 0}, packet.size());
    frame_.append(packet.header);
    frame_.append(packet.payload);
    frame_.append(packet.trailer);
    write(now);
  }
  return taken;
}

size_t PcapIo::receive(std::span<RxPacket> packets, Instant now) {
  const size_t count = inner().receive(packets, now);
  for (const RxPacket& packet : packets.first(count)) {
    if (file_ == nullptr) break;
    begin({*packet.source, local_address(), static_cast<uint8_t>(packet.ecn)}, packet.bytes.size());
    frame_.append(packet.bytes);
    write(now);
  }
  return count;
}

}  // namespace

Result<std::unique_ptr<PacketIo>> record_packets(std::unique_ptr<PacketIo> inner,
                                                 const PcapConfig& config) {
  File file(std::fopen(config.path.c_str(), "wb"));
  // Version 2.4, no time zone, no accuracy; a reader learns the byte order from the magic number.
  const std::array<uint32_t, 6> header = {
      kPcapMagicNs, 4 << 16 | 2, 0, 0, static_cast<uint32_t>(config.snap_bytes), kLinkTypeEthernet};
  if (file == nullptr || !write_words(file.get(), header)) {
    return fail(ErrorCode::kSystem, fmt::format("cannot write the capture file '{}' ({}): choose a "
                                                "file in a directory that you may write to",
                                                config.path, std::strerror(errno)));
  }
  return std::make_unique<PcapIo>(std::move(inner), config, std::move(file));
}

}  // namespace pacecar
