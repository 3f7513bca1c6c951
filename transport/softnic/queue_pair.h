// QueuePair: a queue pair of the software NIC: its addresses, its state, and once it is connected
// its end, which sends and receives in one mode: extended, standard RC or datagrams. One owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/base/fixed_queue.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/endpoint.h"
#include "transport/softnic/send_progress.h"
#include "transport/wire/packet.h"

namespace pacecar {

// What the NIC calls of a queue pair from its connection on, also when halted or broken, whatever
// its mode. The defaults suit an end without connection and flow: nothing to send, no timer.
class QueuePairEnd {
 public:
  virtual ~QueuePairEnd() = default;

  // As Nic::post. Only while the queue pair is connected.
  virtual size_t post(std::span<const WorkRequest> /*work_requests*/) { return 0; }
  virtual bool has_requests() const { return false; }
  // Something could be sent if pacing and window allowed it.
  virtual bool has_work() const { return false; }
  // A probe is to be sent, regardless of pacing and window.
  virtual bool probing() const { return false; }
  virtual Bytes next_bytes() { return 0; }
  virtual Bytes in_flight() const { return 0; }
  // As NicQueuePairs::silence.
  virtual Duration silence(Instant /*now*/) const { return {}; }
  virtual void revoke(const GoneMemory& /*gone*/) {}
  // The next completed work request, in the order of posting; false: none.
  virtual bool pop_completed(WorkRequest* /*work_request*/, CompletionStatus* /*status*/) {
    return false;
  }
  virtual void on_timeout(Instant /*now*/) {}

  // A turn in its flow. `waited`: the flow has waited only for its pacer.
  virtual size_t take_turn(Instant /*now*/, bool /*waited*/, std::span<TxPacket> /*out*/) {
    return 0;
  }
  // A turn of a queue pair without a flow.
  virtual size_t transmit_control(Instant now, std::span<TxPacket> out) = 0;
  // Sends acknowledgements and responses that are due; `out` has room for one. If the slab has no
  // room, it returns 0 and they stay due.
  virtual size_t transmit_answers(Instant /*now*/, std::span<TxPacket> /*out*/) { return 0; }

  // Nothing more is accepted from the peer. Standard RC needs nothing: there it is destroyed.
  virtual void halt() {}
  virtual void on_broken() {}
  // How the peer has broken it, as the rest of a sentence; null: the status is enough.
  virtual const char* fault() const { return nullptr; }
  // As StandardNic::set_rights.
  virtual void set_rights(const StandardRights& /*rights*/) {}
  virtual StandardRest take_back() { return {}; }
};

struct QueuePair {
  // kOpen: it receives and sends datagrams.
  enum class State : uint8_t { kCreated, kConnected, kHalted, kBroken, kOpen };

  QueuePairId id = 0;  // its first number; packets have local.queue_pair
  uint32_t slot = 0;   // the low bits of all its numbers
  SoftEndpoint local;
  SoftEndpoint remote;
  QueuePairConfig config;
  State state = State::kCreated;
  bool internal = false;  // a standby lane: no completions for the program
  CompletionStatus broken_by = CompletionStatus::kOk;
  // As text, how the peer broke the queue pair; null: the status is enough.
  const char* fault = nullptr;
  Instant ack_deadline;                 // when the next acknowledgement must leave
  Bytes unacknowledged_bytes = 0;       // received since the last acknowledgement
  uint32_t unacknowledged_packets = 0;  // received since the last acknowledgement
  FixedQueue<ReceiveRequest> receives{0};
  FixedQueue<ReceiveRequest>* shared_receives = nullptr;  // used instead of `receives`
  std::optional<RcLane> standby;                          // our end of its standby lane
  std::unique_ptr<QueuePairEnd> end;                      // null until it is connected

  FixedQueue<ReceiveRequest>& receive_queue() {
    return shared_receives != nullptr ? *shared_receives : receives;
  }
  bool connected() const { return state == State::kConnected; }
  bool has_work() const { return connected() && end->has_work(); }
};

}  // namespace pacecar
