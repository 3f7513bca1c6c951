// A queue pair as a program holds it: state, attributes, outstanding work requests, completions.
// Thread rule: call with the NIC's mutex held.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "net_plugin/verbs/objects.h"
#include "net_plugin/verbs/receives.h"

namespace pacecar::ibverbs {

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

// The arguments of ibv_create_qp in the form of ibv_create_qp_ex.
ibv_qp_init_attr_ex extended_of(const ibv_qp_init_attr& attr, ibv_pd* pd);

struct QueuePair final : ibv_qp_ex, CompletionSink {
  QueuePair(const ibv_qp_init_attr_ex& made_for, uint32_t sends, uint32_t own_receives);

  ibv_qp* base() { return &qp_base; }
  ProcessNic& nic() { return nic_of(qp_base.context); }
  bool is_datagram() const { return qp_base.qp_type == IBV_QPT_UD; }

  int modify(const ibv_qp_attr& given, int mask);
  size_t room() const { return sent_.capacity() - sent_.size(); }  // for sends
  int post_send(const ibv_send_wr& wr);
  // What post_send would return now; a window that cannot be bound or invalidated is not noticed.
  int check_send(const ibv_send_wr& wr);
  int post_receive(const ibv_recv_wr& wr);
  void on_completion(const Completion& completion) override;
  void reset();  // Drops its work requests and completions.

  QueuePairId id = 0;
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};
  SharedReceives* shared = nullptr;
  bool extended = false;  // created for ibv_wr_*
  std::mutex building;    // from ibv_wr_start to ibv_wr_complete or ibv_wr_abort
  std::vector<Built> built;
  size_t built_count = 0;
  uint32_t async_events = 0;  // in the pipe or read

 private:
  void set_attributes(const ibv_qp_attr& given, int mask);
  int connect();
  void start_sending();
  StandardRights rights() const;
  void finish(uint64_t end);  // The work requests before `end` are done.
  // The oldest one that is not done completes with `first`, and the receive request of an
  // unfinished message with `received`; all others are flushed.
  void fail(ibv_wc_status first, ibv_wc_status received = IBV_WC_WR_FLUSH_ERR);
  void leave_flow();
  int prepare(const ibv_send_wr& wr, WorkRequest* work_request, Sent* sent);
  int fill(const ibv_send_wr& wr, WorkRequest* work_request, Sent* sent);
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

  FixedQueue<Sent> sent_;  // in order; numbered from the reset on, the oldest is first_sent_
  uint64_t first_sent_ = 0;
  Receives own_receives_;
  std::optional<FlowId> flow_;
};

inline QueuePair& queue_pair_of(ibv_qp* qp) {
  return *static_cast<QueuePair*>(reinterpret_cast<ibv_qp_ex*>(qp));
}
inline QueuePair& queue_pair_of(ibv_qp_ex* qp) { return *static_cast<QueuePair*>(qp); }

void set_build_calls(QueuePair& qp);  // Sets the functions behind ibv_wr_*.

}  // namespace pacecar::ibverbs
