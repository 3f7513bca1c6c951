#include "transport/io/decorators/pcap_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

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

// Builds one frame in a buffer that is used again and again.
class Frame {
 public:
  explicit Frame(std::vector<uint8_t>& buffer) : bytes_(buffer) {}

  void begin(const PcapEndpoints& ends, size_t datagram_bytes);
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
  void put_ipv4(const PcapEndpoints& ends, size_t udp_bytes);
  void put_ipv6(const PcapEndpoints& ends, size_t udp_bytes);

  std::vector<uint8_t>& bytes_;
  size_t udp_at_ = 0;
  size_t address_bytes_ = 0;  // both IP addresses, which lie right before the UDP header
};

void Frame::put_ipv4(const PcapEndpoints& ends, size_t udp_bytes) {
  const size_t start = bytes_.size();
  put8(0x45);  // version 4, five words
  put8(static_cast<uint8_t>(ends.ecn));
  put16(20 + udp_bytes);
  put16(ends.ipv4_fragment >> 16);
  put16(ends.ipv4_fragment & 0xFFFF);
  put8(kHopLimit);
  put8(kProtocolUdp);
  put16(0);  // checksum, below
  append(std::span(ends.source.ip).subspan(12));
  append(std::span(ends.destination.ip).subspan(12));
  set16(start + 10, fold(add_words(0, std::span(bytes_).subspan(start))));
  address_bytes_ = 8;
}

void Frame::put_ipv6(const PcapEndpoints& ends, size_t udp_bytes) {
  put16(0x6000 | static_cast<uint8_t>(ends.ecn) << 4);
  put16(0);  // flow label
  put16(udp_bytes);
  put8(kProtocolUdp);
  put8(kHopLimit);
  append(ends.source.ip);
  append(ends.destination.ip);
  address_bytes_ = 32;
}

void Frame::begin(const PcapEndpoints& ends, size_t datagram_bytes) {
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

bool write_words(std::FILE* file, std::span<const uint32_t> words) {
  return std::fwrite(words.data(), sizeof(uint32_t), words.size(), file) == words.size();
}

}  // namespace

Result<PcapWriter> PcapWriter::create(const std::string& path, Bytes snap_bytes) {
  File file(std::fopen(path.c_str(), "wb"));
  // Version 2.4, no time zone, no accuracy; a reader learns the byte order from the magic number.
  const std::array<uint32_t, 6> header = {
      kPcapMagicNs, 4 << 16 | 2, 0, 0, static_cast<uint32_t>(snap_bytes), kLinkTypeEthernet};
  if (file == nullptr || !write_words(file.get(), header)) {
    return fail(ErrorCode::kSystem, fmt::format("cannot write the capture file '{}' ({}): choose a "
                                                "file in a directory that you may write to",
                                                path, std::strerror(errno)));
  }
  return PcapWriter(std::move(file), snap_bytes);
}

void PcapWriter::write(Instant now, const PcapEndpoints& ends,
                       std::span<const std::span<const uint8_t>> parts) {
  if (!good()) return;
  size_t datagram_bytes = 0;
  for (const auto part : parts) datagram_bytes += part.size();
  Frame builder(frame_);
  builder.begin(ends, datagram_bytes);
  for (const auto part : parts) builder.append(part);
  const auto frame = builder.finish();
  const auto kept = frame.first(std::min<size_t>(frame.size(), snap_bytes_));
  const std::array<uint32_t, 4> record = {static_cast<uint32_t>(now.ns() / 1'000'000'000),
                                          static_cast<uint32_t>(now.ns() % 1'000'000'000),
                                          static_cast<uint32_t>(kept.size()),
                                          static_cast<uint32_t>(frame.size())};
  if (!write_words(file_.get(), record) ||
      std::fwrite(kept.data(), 1, kept.size(), file_.get()) != kept.size()) {
    file_.reset();
  }
}

}  // namespace pacecar
