// An RC queue pair of a hostile device, requester and responder, by the InfiniBand specification
// (chapters 9 to 11). Thread rule: under the device's lock.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tests/support/hostile_verbs/memory.h"
#include "tests/support/hostile_verbs/offloads.h"
#include "tests/support/hostile_verbs/queues.h"
#include "tests/support/hostile_verbs/wire.h"

namespace pacecar::hostile {

class Device;

class QueuePair {
 public:
  ibv_qp_ex extended{};  // first member: has the address of the queue pair
  ibv_qp& verbs = extended.qp_base;

  QueuePair(Device& device, const ibv_qp_init_attr& wanted);

  // These return what the libibverbs calls of these names return.
  int modify(const ibv_qp_attr& attributes, int mask);
  int post_send(ibv_send_wr* request, ibv_send_wr** refused);
  int post_receive(ibv_recv_wr* request, ibv_recv_wr** refused);

  void take(const Packet& packet);
  // One tick. False: idle until a packet arrives.
  bool advance();
  void fail();
  void finish_landing() { landing_.finish(); }
  // The completion of this send was polled, which frees its entry and those before it in the send
  // queue. 0: the completion of a receive was polled.
  void on_polled(uint64_t send);
  // Before it is destroyed: frees its entries in the shared receive queue.
  void give_back();
  const ibv_qp_cap& capacity() const { return capacity_; }

 private:
  struct Send {
    uint64_t id;
    uint64_t number;  // from 1 on
    ibv_wr_opcode opcode;
    bool signaled;
    bool solicited;
    uint32_t immediate;
    uint64_t remote;
    uint32_t key;
    std::vector<ibv_sge> pieces;
    std::optional<std::vector<uint8_t>> copied;  // inline
    uint64_t length;
    uint64_t not_before;  // ticks
    uint32_t first_psn;
    uint32_t packets;
    uint64_t read = 0;  // bytes received so far
  };

  // requester
  void transmit();
  bool transmit_packet(Send& send);
  void on_ack(uint32_t psn);
  void on_nak(const Packet& packet);
  void on_read_response(const Packet& packet);
  void complete_front(ibv_wc_status status);
  void complete_through(uint32_t psn);
  void fail_front(ibv_wc_status status);
  void go_back(uint32_t psn);
  void watch_timeout();
  bool gather(const Send& send, uint64_t offset, uint64_t length, std::vector<uint8_t>& data);
  bool scatter(const std::vector<ibv_sge>& pieces, uint64_t offset,
               const std::vector<uint8_t>& data);
  static ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode);

  // responder
  void respond(const Packet& packet);
  void on_write(const Packet& packet);
  void on_send(const Packet& packet);
  void on_read_request(const Packet& packet);
  std::optional<ReceiveRequest> take_receive();
  SharedReceives& shared() const { return *reinterpret_cast<SharedReceives*>(verbs.srq); }
  bool receive_waits() const;
  void acknowledge(uint32_t psn);
  void refuse(Nak nak);
  void refuse_for_ever(Nak nak);
  void received(const Packet& packet, const ReceiveRequest& request, ibv_wc_opcode opcode,
                ibv_wc_status status);
  void flush();
  void end_receiving();
  bool full_member() const;
  void emit(Packet packet);
  bool sends_packets() const { return verbs.state == IBV_QPS_RTS; }
  bool takes_packets() const { return verbs.state == IBV_QPS_RTR || verbs.state == IBV_QPS_RTS; }

  Device& device_;
  ibv_qp_cap capacity_;
  bool all_signaled_;
  ibv_qp_attr attributes_{};
  Port remote_;
  Landing landing_;

  std::deque<Send> sends_;  // posted, not completed
  uint64_t posted_ = 0;
  uint64_t polled_ = 0;
  uint32_t next_psn_ = 0;    // of the next send that is posted
  uint32_t cursor_psn_ = 0;  // of the next packet that is transmitted
  uint32_t acked_psn_ = 0;   // all before it are acknowledged
  int64_t last_progress_ns_ = 0;
  int64_t not_before_ns_ = 0;  // after an RNR NAK
  uint32_t retries_ = 0;
  uint32_t not_ready_ = 0;

  uint32_t reads_landing_ = 0;  // later sends complete after them

  std::deque<ReceiveRequest> receives_;
  uint32_t shared_taken_ = 0;        // taken, and not polled as completions
  int64_t last_receive_ns_ = 0;      // when the receives taken before a failure have completed
  bool last_receive_raised_ = true;  // IBV_EVENT_QP_LAST_WQE_REACHED
  uint32_t expected_psn_ = 0;
  bool sequence_refused_ = false;
  uint64_t message_bytes_ = 0;
  std::optional<ReceiveRequest> into_;  // the receive of the send that is arriving
};

}  // namespace pacecar::hostile
