// A queue pair as a program holds it: state, attributes, outstanding work requests, completions.
//
// Thread rule: call with the NIC's mutex held.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {

Bytes total_of(const ibv_sge* pieces, int count);

// The memory of a work request or receive request. A single piece stays in place; several, and
// inline data, use staging.
struct ScatterList {
  // Sets the NIC's place of the data. `filled`: the NIC writes there; otherwise the data is copied
  // to the staging now. 0, or an errno.
  template <typename Request>
  int gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list, bool filled,
             bool in_line, Request* request);
  // Copies what the NIC has written to the pieces.
  void scatter(Bytes bytes) const;
  void give_back(ProcessNic& nic);

  Staging staging;
  std::vector<std::pair<uint8_t*, uint32_t>> pieces;  // final places of the data in `staging`
};

// The receive requests of a queue pair, or of a shared receive queue: id and scatter list of each.
class Receives {
 public:
  explicit Receives(uint32_t most) : slots_(most) {
    for (uint32_t i = most; i > 0; --i) free_.push_back(i - 1);
  }

  size_t posted() const { return slots_.size() - free_.size(); }
  size_t capacity() const { return slots_.size(); }
  // Fills the request for the NIC. 0, or an errno.
  int prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr, ReceiveRequest* request);
  // Copies the received bytes to the pieces of a completed request. Returns its wr_id.
  uint64_t finish(ProcessNic& nic, uint64_t slot, Bytes bytes);
  // Drops all pending requests, and returns their wr_ids in the order of posting.
  std::vector<uint64_t> drop_all(ProcessNic& nic);

 private:
  struct Slot {
    uint64_t wr_id = 0;
    uint64_t order = 0;
    bool posted = false;
    ScatterList memory;
  };
  void release(ProcessNic& nic, uint32_t slot);

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint64_t order_ = 0;
};

struct SharedReceives : ibv_srq {
  explicit SharedReceives(uint32_t most) : ibv_srq{}, receives(most) {}

  ReceiveQueueId id = 0;
  Receives receives;
  uint32_t max_sge = 0;
  uint32_t limit = 0;         // event when fewer requests are left; 0: none, or raised already
  uint32_t users = 0;         // queue pairs
  uint32_t async_events = 0;  // in the pipe or read

  void on_taken();
};

// An outstanding work request.
struct Sent {
  uint64_t wr_id = 0;
  uint32_t bytes = 0;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  bool signaled = false;
  ScatterList memory;
};

// A work request that ibv_wr_* build between ibv_wr_start and ibv_wr_complete.
struct Built {
  ibv_send_wr wr{};
  std::vector<ibv_sge> pieces;
  std::vector<uint8_t> inline_bytes;
};

// The arguments of ibv_create_qp as those of ibv_create_qp_ex.
ibv_qp_init_attr_ex extended_of(const ibv_qp_init_attr& attr, ibv_pd* pd);

struct QueuePair final : ibv_qp_ex, CompletionSink {
  QueuePair(const ibv_qp_init_attr_ex& made_for, uint32_t sends, uint32_t own_receives);

  ibv_qp* base() { return &qp_base; }
  ProcessNic& nic() { return nic_of(qp_base.context); }
  bool is_datagram() const { return qp_base.qp_type == IBV_QPT_UD; }

  int modify(const ibv_qp_attr& given, int mask);
  int post_send(const ibv_send_wr& wr);
  int post_receive(const ibv_recv_wr& wr);
  void on_completion(const Completion& completion) override;
  // Removes it from the NIC, and drops its work requests and completions.
  void end();

  QueuePairId id = 0;
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};
  SharedReceives* shared = nullptr;
  bool extended = false;  // created for ibv_wr_*
  std::vector<Built> built;
  size_t built_count = 0;
  uint32_t async_events = 0;  // in the pipe or read

 private:
  bool valid(const ibv_qp_attr& given, int mask) const;
  void keep_attributes(const ibv_qp_attr& given, int mask);
  int connect();
  void start_sending();
  void reset();
  // The oldest work request completes with `first`; all others are flushed.
  void fail(ibv_wc_status first);
  void leave_flow();
  int fill(const ibv_send_wr& wr, WorkRequest* work_request, Sent* sent);
  bool post(const WorkRequest& work_request);
  int post_local(const ibv_send_wr& wr);
  int post_datagram(const ibv_send_wr& wr, const WorkRequest& work_request);
  void drop_oldest();
  void on_sent(const Completion& completion);
  void on_received(const Completion& completion);
  void on_broken(const Completion& completion);
  void complete(const Sent& sent, ibv_wc_status status);
  void complete_receive(uint64_t request, ibv_wc_status status);
  void flush_receives();
  void raise(ibv_event_type type);
  Receives& receives() { return shared != nullptr ? shared->receives : own_receives_; }

  FixedQueue<Sent> sent_;  // in order; the number of the oldest is first_sent_
  uint64_t first_sent_ = 0;
  Receives own_receives_;
  std::optional<FlowId> flow_;
};

inline QueuePair& queue_pair_of(ibv_qp* qp) {
  return *static_cast<QueuePair*>(reinterpret_cast<ibv_qp_ex*>(qp));
}
inline QueuePair& queue_pair_of(ibv_qp_ex* qp) { return *static_cast<QueuePair*>(qp); }

// Sets the functions behind ibv_wr_*.
void set_build_calls(QueuePair& qp);

// --- memory windows: parts of registered regions with their own keys ---
// ibv_bind_mw binds a window of type 1, and gives it a new key, which is valid on all queue pairs.
// A work request binds a window of type 2 to a key whose lower 8 bits the program chooses; the key
// is valid on the queue pair of the work request, until a work request of this end or of the peer
// invalidates it. Binding and invalidation take effect when they are posted.

// IBV_WR_BIND_MW, for both types; length 0 unbinds a window of type 1. 0, or an errno.
int bind_window(QueuePair& by, const ibv_send_wr& wr);
// IBV_WR_LOCAL_INV. 0, or an errno.
int invalidate(QueuePair& by, uint32_t key);
// The peer has invalidated the window.
void on_invalidated(ProcessNic& nic, uint32_t key);
// Unbinds the queue pair's windows of type 2, as its connection ends.
void unbind_windows_of(QueuePair& qp);

}  // namespace pacecar::ibverbs
