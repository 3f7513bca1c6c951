// A PacketIo for tests: records sent packets, and receives the packets that the test puts in.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "transport/io/packet_io.h"

namespace pacecar {

class ScriptedPacketIo final : public PacketIo {
 public:
  struct Sent {
    std::vector<uint8_t> bytes;
    Address destination;
    uint16_t path;
    TrafficClass traffic_class;
  };

  ScriptedPacketIo() {
    caps_.datagram_bytes = 9000;
    caps_.burst_bytes = 9000;
    caps_.receive_bytes = 1 << 20;
    caps_.checks_payload = true;
    caps_.sees_ecn = true;
    caps_.jitter = Duration::from_us(3);
    caps_.pause = Duration::from_ms(4);
    local_.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1};
    local_.port = 18515;
    peer_ = local_;
    peer_.ip[15] = 2;
  }

  static constexpr uint32_t kFragment = kIpv4Fragment + 7;  // in each received packet

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override { return local_; }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    return static_cast<uint16_t>(traffic_class == TrafficClass::kControl ? 50'000 : 40'000 + path);
  }
  int wait_fd() const override { return -1; }

  size_t send(std::span<const TxPacket> packets, Instant /*now*/) override {
    const size_t taken = std::min(packets.size(), room);
    for (const TxPacket& packet : packets.first(taken)) {
      std::vector<uint8_t> bytes(packet.header.begin(), packet.header.end());
      bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
      bytes.insert(bytes.end(), packet.trailer.begin(), packet.trailer.end());
      sent.push_back({bytes, *packet.destination, packet.path, packet.traffic_class});
    }
    room -= taken;
    return taken;
  }

  size_t receive(std::span<RxPacket> packets, Instant /*now*/) override {
    handed_out_.clear();
    size_t count = 0;
    for (; count < packets.size() && !incoming.empty(); ++count) {
      handed_out_.push_back(std::move(incoming.front()));
      incoming.pop_front();
      packets[count] = {.bytes = handed_out_.back(),
                        .source = &peer_,
                        .ecn = Ecn::kCapable0,
                        .ipv4_fragment = kFragment};
    }
    return count;
  }

  const Address& peer() const { return peer_; }

  size_t room = SIZE_MAX;  // packets that send() still accepts
  std::vector<Sent> sent;
  std::deque<std::vector<uint8_t>> incoming;

 private:
  PacketIoCaps caps_;
  Address local_;
  Address peer_;
  std::deque<std::vector<uint8_t>> handed_out_;
};

}  // namespace pacecar
