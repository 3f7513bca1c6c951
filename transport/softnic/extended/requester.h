// Requester: the sending half of a queue pair in extended mode. It cuts work requests into packets,
// retransmits lost packets, and completes work requests in the order of posting, when the peer has
// all their bytes. A work request that the peer refuses, or whose memory is deregistered, fails
// alone: its packets are taken back (sent without payload and marked so). So the sequence of PSNs
// has no gaps, and the queue pair continues with its other work requests.
// Bounded; allocates once. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/base/fixed_queue.h"
#include "transport/nic/nic.h"
#include "transport/softnic/extended/path_mtu.h"
#include "transport/softnic/extended/send_window.h"
#include "transport/softnic/paths/path_selector.h"
#include "transport/softnic/rtt_estimator.h"
#include "transport/softnic/send_progress.h"
#include "transport/wire/extended.h"

namespace pacecar {

class Requester {
 public:
  struct Config {
    uint32_t peer_queue_pair = 0;
    uint64_t first_psn = 0;
    uint32_t window_packets = 0;  // a power of two
    uint32_t work_requests = 0;
    PathMtu::Config mtu;
    PathPolicy path_policy = PathPolicy::kRoundRobin;
    uint32_t paths = 1;
    uint64_t path_seed = 0;
    Duration delay_floor;  // smaller differences of delay between paths come from the hosts
    LossRecovery loss;
    Duration silence_limit;  // a peer that is silent for this time is dead
  };
  struct Outgoing {
    wire::DataHeader header;
    std::span<const uint8_t> payload;
    bool retransmission = false;
  };
  explicit Requester(const Config& config);

  // Memory of the work requests; window and paths need more.
  static Bytes work_request_bytes(uint32_t work_requests);

  size_t post(std::span<const WorkRequest> work_requests);
  // Whether posted work requests are not popped yet.
  bool has_requests() const { return !requests_.empty(); }
  bool next_passes();  // The next packet is a whole write with WorkRequest::passing.
  // Something could be sent if pacing and window allowed it.
  bool has_work() const { return probe_ || window_.has_lost() || (unsent() && !window_.full()); }
  // No new packet can be sent before an acknowledgement.
  bool full() const { return window_.full(); }
  // A probe is to be sent after a timeout, regardless of window and pacing: all packets in the
  // window may be lost, and a peer counts as silent only if it was probed.
  bool probing() const { return probe_; }
  bool rerouting() const { return paths_.searching(); }
  uint16_t choose_path(Instant now) { return path_ = paths_.next(now); }
  // Payload bytes of the packet that next_packet will return; 0: none, or it has no payload.
  Bytes next_bytes();
  bool next_packet(Instant now, Outgoing* packet);
  // Takes a run of packets that differ only in PSN and address: full packets of one write, without
  // its last. None of them fills the window or is a retransmission. Returns their number, at most
  // `most`, and the first packet; 0: there are fewer than two.
  uint32_t next_run(Instant now, uint32_t most, Outgoing* first);
  Bytes in_flight() const { return window_.in_flight(); }
  Duration silence(Instant now) const {
    return window_.empty() || probes_ == 0 ? Duration() : now - last_received_;
  }
  // The peer has answered probes since its last acknowledgement.
  bool peer_answers() const {
    return last_received_ > last_acknowledged_ && probes_ < kTimeoutsInVain;
  }
  // Work requests that have begun keep the size of their packets; packets with more payload than
  // mtu().payload() must be sent in pieces.
  const PathMtu& mtu() const { return mtu_; }
  PathMtu::Questions ask(Instant now);  // The questions that are due, to find out what passes.
  void on_answer(Bytes size, bool joined, Instant now);
  // Smoothed; zero before the first sample.
  Duration round_trip() const { return rtt_.smoothed(); }
  void expect_round_trip(Duration round_trip) { rtt_.expect(round_trip); }

  // `arrival`: when the acknowledgement reached this host; `now`: when it is processed.
  SendProgress on_ack(const wire::AckHeader& ack, const wire::Bitmap& bitmap, Instant arrival,
                      Instant now);
  SendProgress on_nak(const wire::Nak& nak, Instant arrival, Instant now);
  void revoke(const GoneMemory& gone);  // Fails every incomplete work request that reads it.

  // Next completed work request, in order; false if there is none.
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status);

  // When on_timeout must be called; never() when nothing is in flight.
  Instant deadline() const { return window_.empty() ? Instant::never() : deadline_; }
  // kRepair: with packet timeouts, lost packets are to be sent; otherwise a probe, whose answer
  // reports the losses. Progress is `timed_out`, a sign of congestion, only from the second probe
  // on and when the silence has lasted for a whole timeout. kPeerDead: within the silence
  // limit the peer has answered nothing, or acknowledged no packet.
  SendTimeout on_timeout(Instant now, SendProgress* progress);

 private:
  struct Posted {
    WorkRequest work_request;
    uint32_t payload = 0;  // of its packets, but for the last
    uint32_t packets = 0;
    uint32_t sent = 0;
    uint32_t acknowledged = 0;
    uint32_t msn = 0;
    CompletionStatus status = CompletionStatus::kOk;
  };

  bool unsent() const { return next_request_ - first_request_ < requests_.size(); }
  void divide(Posted& posted) const;
  void divide_unsent();
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
  PathMtu mtu_;
  const Bytes least_payload_;
  SendWindow window_;
  PathSelector paths_;
  FixedQueue<Posted> requests_;  // numbers first_request_ .. ; the front completes first
  uint32_t first_request_ = 0;   // modulo 2^32
  uint32_t next_request_ = 0;    // the first that still has unsent packets
  bool awaits_ = false;          // an awaited request has ended without asking for acknowledgement
  uint32_t next_msn_ = 0;
  uint32_t marked_seen_ = 0;
  RttEstimator rtt_;
  Instant deadline_ = Instant::never();
  // Or, of both, the time of the first packet in flight since the window was empty.
  Instant last_received_;
  Instant last_acknowledged_;  // packets; answers to probes count for last_received_ only
  uint16_t path_ = 0;
  uint32_t probes_ = 0;  // in a row without an answer
  bool probe_ = false;
};

}  // namespace pacecar
