// Ethernet frames for tests, and ports of a live switch that tests fill and empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/switch/frame_headers.h"
#include "bench/switch/frame_port.h"
#include "transport/io/frame.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::test {

using Frame = std::vector<uint8_t>;

inline void put_be16(size_t value, uint8_t* to) {
  to[0] = static_cast<uint8_t>(value >> 8);
  to[1] = static_cast<uint8_t>(value);
}

struct FrameSpec {
  uint8_t from = 1;  // sending host: the last byte of MAC and IP address
  uint8_t to = 2;
  uint8_t traffic_class = 2;  // ECN capable
  bool ipv6 = false;
};

inline void put_mac(uint8_t host, uint8_t* to) {
  const uint8_t address[6] = {0x02, 0, 0, 0, 0, host};
  std::copy_n(address, 6, to);
}

// A UDP datagram over IPv4 or IPv6, without UDP checksum.
inline Frame udp_frame(const FrameSpec& spec, std::span<const uint8_t> datagram) {
  const size_t ip_bytes = spec.ipv6 ? 40 : 20;
  Frame frame(14 + ip_bytes + 8 + datagram.size());
  put_mac(spec.to, frame.data());
  put_mac(spec.from, &frame[6]);
  put_be16(spec.ipv6 ? 0x86DD : 0x0800, &frame[12]);
  uint8_t* ip = &frame[14];
  if (spec.ipv6) {
    ip[0] = static_cast<uint8_t>(0x60 | spec.traffic_class >> 4);
    ip[1] = static_cast<uint8_t>(spec.traffic_class << 4);
    put_be16(8 + datagram.size(), ip + 4);
    ip[6] = 17;
    ip[23] = spec.from;
    ip[39] = spec.to;
  } else {
    ip[0] = 0x45;
    ip[1] = spec.traffic_class;
    put_be16(28 + datagram.size(), ip + 2);
    ip[9] = 17;
    ip[15] = spec.from;
    ip[19] = spec.to;
    put_be16(static_cast<uint16_t>(~frame::fold(frame::sum16({ip, 20}))), ip + 10);
  }
  uint8_t* udp = ip + ip_bytes;
  put_be16(8 + datagram.size(), udp + 4);
  std::copy(datagram.begin(), datagram.end(), udp + 8);
  return frame;
}

// A frame with `wire_bytes` on the cable, which include preamble, FCS and gap.
inline Frame plain_frame(const FrameSpec& spec, Bytes wire_bytes) {
  const Frame datagram(wire_bytes - 24 - 14 - 20 - 8, 0x55);
  return udp_frame(spec, datagram);
}

// A data packet of Pacecar.
inline Frame data_frame(const FrameSpec& spec, uint32_t psn, size_t payload_bytes) {
  Frame datagram(wire::kDataHeaderBytes + payload_bytes + wire::kChecksumBytes, 0xAA);
  const wire::DataHeader header{.destination_qp = 7,
                                .psn = psn,
                                .address = 4096,
                                .key = 9,
                                .length = static_cast<uint32_t>(payload_bytes)};
  const auto head = std::span(datagram).first<wire::kDataHeaderBytes>();
  wire::encode(header, head);
  const auto payload = std::span(datagram).subspan(wire::kDataHeaderBytes, payload_bytes);
  wire::store_checksum(wire::checksum(head, payload, wire::Coverage::kFull),
                       std::span(datagram).last<wire::kChecksumBytes>());
  return udp_frame(spec, datagram);
}

// The queues between the test and a port.
struct Wire {
  struct Item {
    Instant time;
    Frame frame;
  };
  std::deque<Item> to_switch;
  std::vector<Frame> from_switch;
  FramePortCounters counters;

  void put(Instant time, Frame frame) { to_switch.push_back({time, std::move(frame)}); }
};

class ScriptedFramePort final : public FramePort {
 public:
  ScriptedFramePort(std::string name, Wire& wire) : name_(std::move(name)), wire_(wire) {}

  std::string_view name() const override { return name_; }
  Bytes frame_bytes() const override { return 9018; }
  size_t receive(std::span<ReceivedFrame> frames, Instant now) override {
    held_.clear();
    while (held_.size() < frames.size() && !wire_.to_switch.empty() &&
           wire_.to_switch.front().time <= now) {
      held_.push_back(std::move(wire_.to_switch.front()));
      wire_.to_switch.pop_front();
    }
    for (size_t i = 0; i < held_.size(); ++i) frames[i] = {held_[i].frame, held_[i].time};
    return held_.size();
  }
  void send(std::span<const OutgoingFrame> frames) override {
    for (const OutgoingFrame& frame : frames) {
      Frame& sent = wire_.from_switch.emplace_back(frame.head.begin(), frame.head.end());
      sent.insert(sent.end(), frame.rest.begin(), frame.rest.end());
    }
  }
  int wait_fd() const override { return -1; }
  FramePortCounters counters() override { return wire_.counters; }

 private:
  std::string name_;
  Wire& wire_;
  std::vector<Wire::Item> held_;
};

}  // namespace pacecar::test
