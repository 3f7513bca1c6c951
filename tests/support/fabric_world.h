// A simulated fabric with hosts (or several processes per host, by number) that send packets of
// the test as soon as there is room, and record all packets that arrive. Virtual time; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/check.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"
#include "transport/sim/topologies.h"

namespace pacecar::test {

// Switch ports of one BDP at 400 Gb/s, payload as a length.
inline FabricConfig default_fabric() {
  FabricConfig config;
  config.switches.queue_bytes = 419'150;
  return config;
}

struct Arrival {
  Instant time;
  uint32_t host = 0;
  uint32_t number = 0;
  std::vector<uint8_t> bytes;
  Bytes elided = 0;
  bool trimmed = false;
  Ecn ecn = Ecn::kNotCapable;
  Duration waited;
  Address source;
  std::vector<TelemetryHop> telemetry;
};

// A packet that the test sends from one host.
struct Letter {
  uint32_t to = 0;
  uint32_t number = 0;
  size_t payload = 0;
  uint16_t path = 0;
  TrafficClass traffic_class = TrafficClass::kData;
};

class FabricWorld final : public EventSink {
 public:
  static constexpr size_t kHeader = 16;
  static constexpr size_t kTrailer = 4;

  FabricWorld(const Topology& topology, const FabricConfig& config, uint64_t seed = 1)
      : fabric_(std::move(Fabric::create(loop_, topology, config, seed).value())),
        carries_bytes_(config.payload == PayloadMode::kBytes),
        payload_(config.hosts.datagram_bytes),
        outgoing_(fabric_->processes()) {
    for (uint32_t host = 0; host < fabric_->processes(); ++host) {
      fabric_->port(host).set_listener(*this, host);
    }
  }

  EventLoop& loop() { return loop_; }
  Fabric& fabric() { return *fabric_; }
  const std::vector<Arrival>& arrivals() const { return arrivals_; }
  void clear_arrivals() { arrivals_.clear(); }
  // Hosts do not receive: packets stay in their inboxes.
  void stop_reading() { reading_ = false; }
  void keep_bytes() { keeping_ = true; }

  // The link from one node to its neighbour.
  LinkId link(NodeId from, NodeId to) const {
    for (LinkId id = 0; id < fabric_->links(); ++id) {
      if (fabric_->link_info(id).from == from && fabric_->link_info(id).to == to) return id;
    }
    check_failed("the nodes are neighbours", __FILE__, __LINE__);
  }

  // Bytes on the wire of a datagram with this payload.
  static Bytes datagram(size_t payload) { return kHeader + payload + kTrailer; }

  void send(uint32_t from, const Letter& letter) {
    outgoing_[from].push_back(letter);
    pump(from);
  }
  void send_many(uint32_t from, Letter letter, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i, ++letter.number) outgoing_[from].push_back(letter);
    pump(from);
  }
  size_t unsent(uint32_t host) const { return outgoing_[host].size(); }

  // True when the fabric accepted the packet at once.
  bool try_send(uint32_t from, const Letter& letter) {
    std::array<uint8_t, kHeader> header{};
    std::memcpy(header.data(), &letter.number, sizeof(letter.number));
    std::array<uint8_t, kTrailer> trailer{0xA, 0xB, 0xC, 0xD};
    const bool control = letter.traffic_class == TrafficClass::kControl;
    if (carries_bytes_ || control) {
      const auto payload = payload_of(letter);
      std::copy(payload.begin(), payload.end(), payload_.begin());
    }
    const TxPacket packet{.header = header,
                          .payload = {payload_.data(), letter.payload},
                          .trailer = trailer,
                          .destination = &fabric_->port(letter.to).local_address(),
                          .path = letter.path,
                          .traffic_class = letter.traffic_class};
    return fabric_->port(from).send({&packet, 1}, loop_.now()) == 1;
  }

  static std::vector<uint8_t> payload_of(const Letter& letter) {
    std::vector<uint8_t> payload(letter.payload);
    for (size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<uint8_t>(letter.number * 31 + i);
    }
    return payload;
  }

  void run_dry() {
    while (loop_.run_one()) {
    }
  }
  void run_for(Duration time) { loop_.run_until(loop_.now() + time); }

  void on_event(Instant, uint32_t host) override {
    if (reading_) read(host);
    pump(host);
  }

  void read(uint32_t host) {
    std::array<RxPacket, 16> packets;
    while (const size_t count = fabric_->port(host).receive(packets, loop_.now())) {
      for (const RxPacket& packet : std::span(packets).first(count)) keep(host, packet);
    }
  }

 private:
  void pump(uint32_t host) {
    auto& letters = outgoing_[host];
    while (!letters.empty() && try_send(host, letters.front())) letters.pop_front();
  }

  void keep(uint32_t host, const RxPacket& packet) {
    Arrival& arrival = arrivals_.emplace_back();
    arrival.time = loop_.now();
    arrival.host = host;
    std::memcpy(&arrival.number, packet.bytes.data(), sizeof(arrival.number));
    if (keeping_) arrival.bytes.assign(packet.bytes.begin(), packet.bytes.end());
    arrival.elided = packet.elided;
    arrival.trimmed = packet.trimmed;
    arrival.ecn = packet.ecn;
    arrival.waited = packet.waited;
    arrival.source = *packet.source;
    arrival.telemetry.assign(packet.telemetry.begin(), packet.telemetry.end());
  }

  EventLoop loop_;
  std::unique_ptr<Fabric> fabric_;
  bool carries_bytes_;
  bool reading_ = true;
  bool keeping_ = false;
  std::vector<uint8_t> payload_;
  std::vector<std::deque<Letter>> outgoing_;  // by host
  std::vector<Arrival> arrivals_;
};

inline Topology star(uint32_t hosts, CableSpec cable = {}) {
  return make_star({.hosts = hosts, .cable = cable}).value();
}

}  // namespace pacecar::test
