// A burst on one switch, packet by packet: hosts that all send to one receiver, with ECN, telemetry
// and PFC at its port, and an idle path back. The controllers are the production ones, the network
// is ideal. The tests compare with published results of the algorithms. Virtual time; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "cc/controller.h"
#include "transport/base/pacer.h"

namespace pacecar::test {

struct StarConfig {
  Rate rate;                  // of each link
  Duration link_delay;        // of every link
  Bytes payload = 1000;       // of every packet
  Bytes overhead = 48;        // of a packet on the wire, including telemetry
  Bytes ack_bytes = 60;       // on the wire
  Bytes mark_from = 100'000;  // ECN: linear up to mark_share, certain above mark_all
  Bytes mark_all = 400'000;
  double mark_share = 0.2;
  Bytes buffer = 4 << 20;      // of the switch; PFC pauses a sender at 1/8 of the free bytes
  Bytes resume_margin = 2496;  // below the threshold for a pause
  Duration sample_interval;    // of the queue
  unsigned seed = 1;
};

class StarNetwork {
 public:
  explicit StarNetwork(const StarConfig& config) : config_(config), random_(config.seed) {}

  // Its flow never ends.
  void add_sender(std::shared_ptr<Controller> controller, Instant start) {
    senders_.emplace_back().controller = std::move(controller);
    schedule(start, Kind::kSend, senders_.size() - 1);
  }

  void run_until(Instant end) {
    if (sampling_from_ == Instant()) sampling_from_ = end;
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      handle(event);
    }
    now_ = end;
  }

  // The longest sampled queue since the first run_until() returned.
  Bytes largest_queue() const { return largest_queue_; }
  Bytes delivered() const { return delivered_; }  // to the receiver's link, on the wire

 private:
  enum class Kind : uint8_t { kSend, kArrive, kPortFree, kAcknowledge, kPause, kResume };

  struct Packet {
    Instant sent_at;
    TelemetryHop hop;
    bool marked = false;
  };
  struct Event {
    Instant at;
    uint64_t order;
    Kind kind;
    size_t sender;
    Packet packet;
    bool operator>(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };
  struct Queued {
    size_t sender;
    Packet packet;
  };
  struct Sender {
    std::shared_ptr<Controller> controller;
    Pacer pacer{16};
    Instant link_free;
    Instant wake;  // the valid send event; earlier ones are ignored
    Bytes in_flight = 0;
    Bytes sent = 0;
    bool paused = false;
    Bytes buffered = 0;  // in the switch
    bool pause_sent = false;
  };

  void schedule(Instant at, Kind kind, size_t sender) { schedule(at, kind, sender, Packet{}); }
  void schedule(Instant at, Kind kind, size_t sender, const Packet& packet) {
    events_.push({at, next_order_++, kind, sender, packet});
  }

  void handle(const Event& event) {
    Sender& s = senders_[event.sender];
    switch (event.kind) {
      case Kind::kSend: return try_send(event.sender);
      case Kind::kArrive: return arrive(event);
      case Kind::kPortFree: port_busy_ = false; return transmit();
      case Kind::kAcknowledge: return acknowledge(event);
      case Kind::kPause: s.paused = true; return;
      case Kind::kResume: s.paused = false; return try_send(event.sender);
    }
  }

  void try_send(size_t id) {
    Sender& s = senders_[id];
    const FlowLimits d = s.controller->decide(now_);
    s.pacer.set_rate(d.rate, now_);
    if (s.paused || (s.in_flight > 0 && s.in_flight + config_.payload > d.window)) return;
    const Instant ready = std::max(s.pacer.next_send(), s.link_free);
    if (ready > now_) {
      if (s.wake <= now_ || ready < s.wake) schedule(s.wake = ready, Kind::kSend, id);
      return;
    }
    s.pacer.on_sent(wire_bytes(), now_);
    s.in_flight += config_.payload;
    s.sent += config_.payload;
    s.link_free = now_ + config_.rate.time_for(wire_bytes());
    schedule(s.link_free + config_.link_delay, Kind::kArrive, id, {.sent_at = now_, .hop = {}});
    schedule(s.wake = s.link_free, Kind::kSend, id);
  }

  void arrive(const Event& event) {
    Sender& s = senders_[event.sender];
    queue_.push_back({event.sender, event.packet});
    queued_ += wire_bytes();
    s.buffered += wire_bytes();
    if (!s.pause_sent && s.buffered > pause_threshold()) {
      s.pause_sent = true;
      schedule(now_ + config_.link_delay, Kind::kPause, event.sender);
    }
    transmit();
  }

  void transmit() {
    sample();
    if (port_busy_ || queue_.empty()) return;
    Queued out = queue_.front();
    queue_.pop_front();
    queued_ -= wire_bytes();
    delivered_ += wire_bytes();
    Sender& s = senders_[out.sender];
    s.buffered -= wire_bytes();
    if (s.pause_sent && s.buffered + config_.resume_margin <= pause_threshold()) {
      s.pause_sent = false;
      schedule(now_ + config_.link_delay, Kind::kResume, out.sender);
    }
    out.packet.marked = marks();
    out.packet.hop = {.time_ns = static_cast<uint32_t>(now_.ns()),
                      .sent_bytes = static_cast<uint32_t>(delivered_),
                      .queue_bytes = static_cast<uint32_t>(queued_),
                      .rate_mbps = static_cast<uint32_t>(config_.rate.bps() / 1'000'000)};
    port_busy_ = true;
    const Instant done = now_ + config_.rate.time_for(wire_bytes());
    schedule(done, Kind::kPortFree, out.sender);
    const Duration back = config_.link_delay * 3 + config_.rate.time_for(config_.ack_bytes) * 2;
    schedule(done + back, Kind::kAcknowledge, out.sender, out.packet);
  }

  void acknowledge(const Event& event) {
    Sender& s = senders_[event.sender];
    s.in_flight -= config_.payload;
    s.controller->on_ack(now_, {.rtt = now_ - event.packet.sent_at,
                                .acked = config_.payload,
                                .marked = event.packet.marked ? config_.payload : 0,
                                .in_flight = s.in_flight,
                                .sent = s.sent,
                                .echo_marked = event.packet.marked,
                                .hops = 1,
                                .telemetry = {event.packet.hop}});
    try_send(event.sender);
  }

  bool marks() {
    if (queued_ <= config_.mark_from) return false;
    if (queued_ > config_.mark_all) return true;
    const double share = static_cast<double>(queued_ - config_.mark_from) /
                         static_cast<double>(config_.mark_all - config_.mark_from);
    const double drawn = static_cast<double>(random_()) / static_cast<double>(random_.max());
    return drawn < share * config_.mark_share;
  }

  // Queues between two samples are ignored, as in the published experiments.
  void sample() {
    if (now_ < sampling_from_ || now_ < next_sample_ || sampling_from_ == Instant()) return;
    next_sample_ = now_ + config_.sample_interval;
    largest_queue_ = std::max(largest_queue_, queued_);
  }

  Bytes wire_bytes() const { return config_.payload + config_.overhead; }
  Bytes pause_threshold() const { return (config_.buffer - queued_) / 8; }

  StarConfig config_;
  std::minstd_rand random_;
  std::vector<Sender> senders_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  Instant now_;
  std::deque<Queued> queue_;  // at the receiver's port
  Bytes queued_ = 0;
  bool port_busy_ = false;
  Bytes delivered_ = 0;
  Instant sampling_from_;
  Instant next_sample_;
  Bytes largest_queue_ = 0;
};

}  // namespace pacecar::test
