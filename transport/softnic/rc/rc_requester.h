// RcRequester: the sending half of a queue pair of standard RC or UC. It cuts work requests into
// packets, goes back to the first missing packet after a loss, and completes work requests in the
// order of posting (InfiniBand Architecture Specification vol. 1, 9.7.3 to 9.7.5).
// A read takes as many PSNs as its response has packets. It is requested in pieces, so that the
// window bounds the bytes in flight; the responses acknowledge it. An atomic is handled as a read
// of one word: the responder keeps the result for a repeated request.
// The connection ends (failure()) if the peer refuses a request, or if memory is deregistered while
// its packets are in flight. restart() continues over another connection with the requests that the
// peer has not received. A work request of which nothing has been sent fails alone. Packets of UC
// are not acknowledged: they count as arrived when the packet I/O has them (on_handed_over).
// Invariants: unacknowledged_ <= next_ <= highest_; work requests get their PSNs in order, when
// their first packet is made. Bounded; allocates once. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/fixed_queue.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/memory_table.h"
#include "transport/softnic/paths/path_selector.h"
#include "transport/softnic/rc/read_window.h"
#include "transport/softnic/rtt_estimator.h"
#include "transport/softnic/send_progress.h"
#include "transport/wire/roce.h"

namespace pacecar {

class RcRequester {
 public:
  struct Config {
    uint32_t peer_queue_pair = 0;
    uint64_t first_psn = 0;
    uint32_t window_packets = 0;
    uint32_t work_requests = 0;
    Bytes mtu = 0;
    uint32_t paths = 1;
    uint64_t path_seed = 0;
    LossRecovery loss;
    StandardSending sending;
    bool reliable = true;  // false: UC
  };
  struct Outgoing {
    roce::Packet packet;
    bool retransmission = false;
  };

  RcRequester(const Config& config, ReadWindow& reads);  // `reads` outlives it.

  // Sets limits and first PSN. Nothing may have been posted before.
  void start(const StandardSending& sending, uint64_t first_psn);

  // Bytes that the queue of `work_requests` takes.
  static Bytes work_request_bytes(uint32_t work_requests);

  size_t post(std::span<const WorkRequest> work_requests);
  // Whether a posted work request has not been popped yet.
  bool has_requests() const { return !requests_.empty(); }
  bool has_completed() const { return first_request_ != oldest_; }
  bool idle() const { return unacknowledged_ == highest_; }
  bool has_work() const;  // Something could be sent if pacing and window allowed it.
  // No new packet can be sent before an acknowledgement.
  bool full() const { return next_ - unacknowledged_ >= config_.window_packets; }
  // One packet is to be sent after a timeout, regardless of window and pacing.
  bool probing() const { return probe_; }
  uint16_t choose_path(Instant now) { return path_ = paths_.next(now); }
  // The next packet is a READ request, for the first or a further piece.
  bool next_reads() const {
    return !probe_ && cursor_ != end_of_requests() &&
           posted(cursor_).work_request.opcode == Opcode::kRead;
  }
  // Payload bytes of the packet that next_packet will return; 0: none, or it has no payload.
  Bytes next_bytes() const;
  // Takes the next packet; `ask`: it requests an acknowledgement. False: none, or failed.
  bool next_packet(Instant now, bool ask, Outgoing* out);
  Bytes in_flight() const { return in_flight_; }

  // An ACK or a NAK. `arrival` is when it reached this host.
  SendProgress on_ack(const roce::Packet& ack, Instant arrival, Instant now);
  SendProgress on_read_response(const roce::Packet& response, const MemoryTable& memory,
                                Instant now);
  // UC: packets taken before the previous call count as arrived, as the packet I/O has sent them.
  SendProgress on_handed_over();
  // A CNP has arrived: the next acknowledged bytes count as marked.
  void on_congestion() { congested_ = true; }
  void revoke(const GoneMemory& gone);  // It is not read any more.

  // Next completed work request, in order; false if there is none.
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status);
  // How many work requests are done: popped, or all before them are done, and they did not fail.
  uint64_t done() const;
  // kOk: the connection can continue.
  CompletionStatus failure() const { return failure_; }

  // The connection has ended: none of its packets is in flight any more.
  void stop(CompletionStatus status);
  // No other connection will follow. If deregistered memory was the cause, the oldest work request
  // fails with that status. Returns the bytes that are left unacknowledged.
  Bytes abandon();
  // Continues over another connection. On the last one the peer has received `received` writes with
  // immediate and, because RC keeps order, all requests before them. Returns how many bytes of
  // requests had arrived; nullopt: `received` is impossible.
  std::optional<Bytes> restart(uint32_t peer_queue_pair, uint64_t first_psn, uint64_t received);

  Instant deadline() const { return idle() ? Instant::never() : deadline_; }
  SendTimeout on_timeout(Instant now, SendProgress* progress);

 private:
  struct Posted {
    WorkRequest work_request;
    uint64_t first_psn = 0;  // from its first packet on
    uint32_t packets = 0;    // sequence numbers that it takes
    bool started = false;
    bool revoked = false;  // its memory may not be read any more
    bool over = false;     // it is not sent again: it has failed, or it has arrived
    CompletionStatus status = CompletionStatus::kOk;

    uint64_t end() const { return first_psn + packets; }
    bool is_atomic() const {
      return work_request.opcode == Opcode::kCompareSwap ||
             work_request.opcode == Opcode::kFetchAdd;
    }
    // A read or an atomic, which its response acknowledges.
    bool is_read() const { return work_request.opcode == Opcode::kRead || is_atomic(); }
    // The peer counts it on arrival: RcResponder::writes_received.
    bool counted() const { return work_request.opcode == Opcode::kWriteWithImm && !over; }
  };
  // A packet whose acknowledgement will be timed.
  struct Sample {
    uint64_t psn = 0;
    Instant sent;
  };

  uint64_t end_of_requests() const { return first_request_ + requests_.size(); }
  Posted& posted(uint64_t request) { return requests_[request - first_request_]; }
  const Posted& posted(uint64_t request) const { return requests_[request - first_request_]; }
  uint32_t packets_of(const WorkRequest& work_request) const;
  Bytes bytes_before(const Posted& posted, uint64_t psn) const;
  uint64_t piece_end(const Posted& posted, uint64_t psn) const;
  void start(Posted& posted);
  void advance_cursors();
  bool fill(const Posted& posted, uint64_t psn, Outgoing* out);
  void fill_message(const Posted& posted, uint64_t psn, roce::Packet* packet);
  void fill_atomic(const WorkRequest& work_request, roce::Packet* packet);
  void on_sent(uint64_t psn, bool timed, Instant now);
  // An answer acknowledges all before `psn`. False: not all, as an earlier read is unanswered.
  bool acknowledge_before(uint64_t psn, Instant now, SendProgress* progress);
  void advance_to(uint64_t psn, SendProgress* progress);
  void take_sample(uint64_t psn, Instant arrival, Instant now, SendProgress* progress);
  void on_nak(uint8_t syndrome, Instant now, SendProgress* progress);
  void on_progress(Instant now);
  void go_back(SendProgress* progress);
  void fail(CompletionStatus status);
  void fail_oldest(CompletionStatus status);
  void begin_at(uint64_t psn);

  Config config_;
  PathSelector paths_;
  FixedQueue<Posted> requests_;  // numbers first_request_ .. ; the front completes first
  uint64_t first_request_ = 0;
  uint64_t oldest_ = 0;      // the first request that is not acknowledged
  uint64_t cursor_ = 0;      // the request of next_
  uint64_t confirmed_ = 0;   // writes with immediate that are acknowledged, on this connection
  uint64_t unacknowledged_;  // the oldest PSN that is not acknowledged
  uint64_t next_;            // the PSN to send next
  uint64_t highest_;         // beyond every PSN ever sent
  uint64_t allocated_;       // beyond every PSN given to a request
  uint64_t taken_ = 0;       // next_ at the previous on_handed_over()
  Bytes in_flight_ = 0;
  Bytes unacknowledged_bytes_ = 0;  // of posted requests other than reads
  ReadWindow::Share reading_;       // bytes of reads that are requested and have not arrived
  FixedQueue<uint64_t> pieces_;     // of each outstanding piece of a read, the PSN behind it
  uint64_t read_packets_;           // most packets of a piece
  FixedQueue<Sample> samples_;
  RttEstimator rtt_;
  Instant deadline_ = Instant::never();
  Instant last_answer_;      // or the time of the first packet after everything was acknowledged
  Instant first_refusal_;    // of the `not_ready_`
  uint64_t probe_mark_ = 0;  // next_ at the last probe; 0: none since it began or went back
  uint32_t probes_ = 0;      // in a row without progress
  uint32_t not_ready_ = 0;   // times that the peer had no receive request, in a row
  uint32_t unasked_ = 0;     // packets since the last one that requested an acknowledgement
  uint16_t path_ = 0;
  bool probe_ = false;           // one packet is to be sent regardless of window and pacing
  bool gone_back_ = false;       // it went back, and nothing has been acknowledged since
  bool receiver_waits_ = false;  // the peer has no receive request: nothing is sent until deadline_
  bool congested_ = false;
  CompletionStatus failure_ = CompletionStatus::kOk;
};

}  // namespace pacecar
