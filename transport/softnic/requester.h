// The sending half of a queue pair: cuts work requests into packets, repairs losses, completes work
// requests in the order of their posting when the peer has all of their bytes.
//
// A work request that the peer refuses, or whose memory is deregistered, fails alone: its packets
// are taken back (sent empty, marked void), so that the sequence numbers stay whole and the queue
// pair lives on for its other work requests.
#pragma once

#include <cstdint>

#include "transport/base/fixed_queue.h"
#include "transport/nic/nic.h"
#include "transport/softnic/path_selector.h"
#include "transport/softnic/rtt_estimator.h"
#include "transport/softnic/send_progress.h"
#include "transport/softnic/send_window.h"
#include "transport/wire/extended.h"

namespace pacecar {

class Requester {
 public:
  struct Config {
    uint32_t peer_queue_pair = 0;
    uint64_t first_psn = 0;
    uint32_t window_packets = 0;  // a power of two
    uint32_t work_requests = 0;
    Bytes mtu = 0;
    PathPolicy path_policy = PathPolicy::kRoundRobin;
    uint32_t paths = 1;
    uint64_t path_seed = 0;
    Duration delay_floor;  // smaller differences between paths come from the hosts
    LossRecovery loss;
    Duration silence_limit;  // a peer that is silent for so long is dead
  };
  struct Outgoing {
    wire::DataHeader header;
    std::span<const uint8_t> payload;
    bool retransmission = false;
  };
  explicit Requester(const Config& config);

  // Memory of its work requests, beside that of window and paths.
  static Bytes work_request_bytes(uint32_t work_requests);

  size_t post(std::span<const WorkRequest> work_requests);
  // Posted, and not popped.
  bool has_requests() const { return !requests_.empty(); }
  // The next packet is a whole write that may overtake others.
  bool next_passes();
  // Something could be sent if pacing and window allowed it.
  bool has_work() const { return probe_ || window_.has_lost() || (unsent() && !window_.full()); }
  // No new packet can be sent before an acknowledgement.
  bool full() const { return window_.full(); }
  // After a timeout a probe is sent regardless of window and pacing: all that fills the window may
  // be lost, and a peer counts as silent only if it was probed.
  bool probing() const { return probe_; }
  // A better path is being searched.
  bool rerouting() const { return paths_.searching(); }
  // Chooses the path of the next packets.
  uint16_t choose_path(Instant now) { return path_ = paths_.next(now); }
  // Payload of what next_packet will give; 0 if there is none, or it is empty.
  Bytes next_bytes();
  // Takes the next packet to send; false if there is none.
  bool next_packet(Instant now, Outgoing* packet);
  // Likewise a run of packets that differ only in PSN and place: full packets of one write, without
  // its last, none of which fills the window or is a retransmission. Returns how many, at most
  // `most`, and the first; 0: fewer than two.
  uint32_t next_run(Instant now, uint32_t most, Outgoing* first);
  Bytes in_flight() const { return window_.in_flight(); }
  // Smoothed; zero before the first sample.
  Duration round_trip() const { return rtt_.smoothed(); }
  void expect_round_trip(Duration round_trip) { rtt_.expect(round_trip); }

  // `arrival`: when the acknowledgement reached this host; `now`: when it is processed.
  SendProgress on_ack(const wire::AckHeader& ack, const wire::Bitmap& bitmap, Instant arrival,
                      Instant now);
  SendProgress on_nak(const wire::Nak& nak, Instant arrival, Instant now);
  // Fails every work request that reads the region.
  void revoke(uint32_t local_key);

  // Next completed work request, in order; false if there is none.
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status);

  // When on_timeout must be called; never() when nothing is in flight.
  Instant deadline() const { return window_.empty() ? Instant::never() : deadline_; }
  // kRepair: something is to be sent. With packet timeouts, the lost packets; without them, a probe
  // whose answer reports the losses. The first probe has no further meaning; later ones mean
  // congestion when the silence has lasted for a whole timeout.
  SendTimeout on_timeout(Instant now, SendProgress* progress);

 private:
  struct Posted {
    WorkRequest work_request;
    uint32_t packets = 0;
    uint32_t sent = 0;
    uint32_t acknowledged = 0;
    uint32_t msn = 0;
    CompletionStatus status = CompletionStatus::kOk;
  };

  bool unsent() const { return next_request_ - first_request_ < requests_.size(); }
  Posted& posted(uint32_t request) { return requests_[request - first_request_]; }
  void fill(const Posted& posted, const SendWindow::Packet& packet, uint64_t psn, Instant now,
            Outgoing* out) const;
  bool acknowledge(uint64_t psn, SendProgress* progress);
  void acknowledge_oldest(uint64_t end, SendProgress* progress);
  void count_arrival(uint64_t psn, Instant now);
  [[gnu::noinline]] void on_overtaken(Instant echo_sent, Instant now, SendProgress* progress);
  void declare_lost_before(Instant limit, Instant now, SendProgress* progress);
  void learn_path(const wire::AckHeader& ack, uint64_t psn, Duration rtt, Instant now);
  bool packet_timeouts() const { return config_.loss.packet_timeout.ns() != 0; }
  Instant next_timeout(Instant now);
  void take_back(Posted& posted, CompletionStatus status);
  void begin_activity(Instant now);
  void ask(Instant now, Outgoing* out) const;
  void on_sent(Instant now);

  Config config_;
  SendWindow window_;
  PathSelector paths_;
  FixedQueue<Posted> requests_;  // numbers first_request_ .. ; the front completes first
  uint32_t first_request_ = 0;   // modulo 2^32
  uint32_t next_request_ = 0;    // the first that still has unsent packets
  uint32_t next_msn_ = 0;
  uint32_t marked_seen_ = 0;
  RttEstimator rtt_;
  Instant deadline_ = Instant::never();
  Instant last_received_;  // or the begin of the present activity
  uint16_t path_ = 0;
  uint32_t probes_ = 0;  // in a row without an answer
  bool probe_ = false;
};

}  // namespace pacecar
