// Lane: one RC connection of a queue pair, that is a queue pair of libibverbs with a path of its
// own through the network, and its outstanding work requests. A failed connection may be replaced
// by another; the lane stays. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/paced/work_queue.h"
#include "transport/verbs/device.h"
#include "transport/verbs/lane_ledger.h"

namespace pacecar {

// What all lanes of a queue pair have in common.
struct LaneConfig {
  ibv_pd* domain = nullptr;
  ibv_cq* completions = nullptr;
  ibv_srq* shared_receives = nullptr;  // or, when there is none:
  uint32_t receives = 0;
  uint32_t work_requests = 0;
  uint8_t traffic_class = 0;
  uint16_t pkey_index = 0;
  uint8_t service_level = 0;  // on InfiniBand
  uint8_t ack_timeout = 0;    // of the queue pair's attributes: 4.096 us * 2^ack_timeout
};

// State of a stopped connection. Destroying it drops completions, so receives are counted first.
struct LaneEnd {
  Instant stopped;
  bool received_all = false;  // it takes no more shared receive requests
  bool marked = false;   // a last work request has been posted, which completes after all others
  bool drained = false;  // that one has completed, and so have all before it
};

// Which work requests of a failed lane have been done. The receiver counts writes with immediate.
// RC keeps order, so its count also covers everything posted before them. The rest is sent again.
// The counts are of one RC connection; resolve() starts new counts for the next connection.
class LaneAccount {
 public:
  explicit LaneAccount(uint32_t capacity) : unresolved_(capacity) {}

  // The peer's write with immediate has arrived.
  void on_received() { ++received_; }
  uint64_t received() const { return received_; }

  // A work request of ours is done.
  void on_done(const LaneLedger::Entry& entry) { confirmed_ += notifies(entry) ? 1 : 0; }
  // The device has flushed it, and its result is unknown. In order of posting.
  void on_lost(const LaneLedger::Entry& entry) { PACECAR_CHECK(unresolved_.push(entry)); }

  struct Resolved {
    size_t arrived = 0;
    Bytes arrived_bytes = 0;
    size_t put_back = 0;
  };
  // With the peer's count: finishes the work requests that arrived, and puts the others back into
  // `work`. Errors: kPeer for an impossible count; then nothing changes.
  Result<Resolved> resolve(uint64_t peer_received, WorkQueue& work);
  // Gives up the unresolved ones: their results will never be known.
  void abandon(WorkQueue& work);

  size_t unresolved() const { return unresolved_.size(); }

 private:
  static bool notifies(const LaneLedger::Entry& entry) {
    return entry.opcode == Opcode::kWriteWithImm;
  }

  FixedQueue<LaneLedger::Entry> unresolved_;
  uint64_t received_ = 0;
  uint64_t confirmed_ = 0;  // our writes with immediate that are done
};

struct Lane {
  explicit Lane(uint32_t work_requests) : ledger(work_requests), account(work_requests) {}
  bool up() const { return recovery.up(); }

  QueuePairHandle queue_pair;
  LaneLedger ledger;
  LaneAccount account;
  LaneRecovery recovery;
  RcLane local;
  uint32_t flow_label = 0;
  uint32_t inline_bytes = 0;
  LaneEnd ending;
  CompletionStatus failed_by = CompletionStatus::kOk;
  std::string failed_because;  // for logs; while it is not up
};

RcEndpoint endpoint_of(const VerbsDevice& device);  // The endpoint of the device, without lanes.
// Writes of up to this size are inline, where the device allows it.
constexpr uint32_t kInlineBytes = 64;

// Memory per entry of a device's work queue, with the driver's bookkeeping, as in mlx5.
constexpr Bytes kDeviceWorkRequestBytes = 128;

// The flow label of one of several lanes, so that their paths differ.
uint32_t path_label(uint32_t random, uint32_t lane);
// In state INIT, with a random first PSN; `flow_label` selects its path.
Result<Lane> make_lane(const VerbsDevice& device, const LaneConfig& config, uint32_t flow_label);
// To state RTS. Errors: kPeer, when the peer cannot be reached from here.
Result<void> connect_lane(const VerbsDevice& device, const LaneConfig& config, const Lane& lane,
                          const RcEndpoint& remote, const RcLane& remote_lane);
// Ends sending and receiving; outstanding work requests complete with an error. Nothing to do for a
// lane without a connection.
void stop_lane(const Lane& lane);
// Post one request; `piece` of length 0: without memory. 0, or the errno of the refusal.
int post_send(const Lane& lane, ibv_send_wr request, ibv_sge piece);
int post_receive(const Lane& lane, uint64_t id, ibv_sge piece);
ibv_sge piece_of(const void* memory, size_t length, uint32_t key);

// The largest ack timeout with which all retries together take at most `silence`.
uint8_t choose_ack_timeout(Duration silence);
// Data lane: a lost last packet is resent within a second; the standby lane bridges longer outages.
constexpr Duration kLongestRetries = Duration::from_s(6);

}  // namespace pacecar
