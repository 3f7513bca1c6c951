// RcEnd: one end of a connection of standard RC or UC: its requester, its responder, and how it
// fills its turn. RcReceiver gives it the received packets. RcRecovery replaces a connection that
// has failed, with the help of a StandbyEnd. Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/nic.h"
#include "transport/softnic/nic_core.h"
#include "transport/softnic/rc/rc_recovery.h"
#include "transport/softnic/rc/rc_requester.h"
#include "transport/softnic/rc/rc_responder.h"
#include "transport/softnic/rc/read_window.h"
#include "transport/softnic/roce_packets.h"

namespace pacecar {

// StandbyMessages: the memory for the messages of a standby lane (transport/nic/lanes), an internal
// queue pair of the NIC. Bounded: kMessages in flight each way; more wait. Pure; one owner.
class StandbyMessages {
 public:
  static constexpr uint32_t kMessages = 8;
  // Longer than a message, so a message that is too long is received as malformed, not refused.
  static constexpr size_t kRoomOfOne = 32;
  using Room = std::array<uint8_t, kMessages * kRoomOfOne>;

  // Messages are received at `room`, which the NIC has registered as `key`.
  StandbyMessages(Room& room, uint32_t key) : room_(room), key_(key) {}

  ReceiveRequest receive(uint64_t slot) const {
    return {
        .id = slot, .local = &room_[slot * kRoomOfOne], .length = kRoomOfOne, .local_key = key_};
  }
  // nullopt: malformed.
  std::optional<RecoveryMessage> take(const Completion& completion) const {
    if (completion.kind != CompletionKind::kReceivedSend) return std::nullopt;
    return decode_recovery_message(
        std::span(room_).subspan(completion.work_request * kRoomOfOne, completion.bytes));
  }
  // False: no room; try again when earlier messages are acknowledged.
  bool send(const RecoveryMessage& message, RcRequester& requester) {
    auto& bytes =
        sent_[next_ % kMessages];  // of the oldest message, which is done if there is room
    const WorkRequest request{
        .local = bytes.data(), .length = bytes.size(), .opcode = Opcode::kSend};
    if (requester.post({&request, 1}) == 0) return false;
    bytes = encode(message);
    ++next_;
    return true;
  }

 private:
  using Message = std::array<uint8_t, RecoveryMessage::kBytes>;
  std::array<Message, kMessages> sent_;
  Room& room_;
  uint32_t key_;
  uint32_t next_ = 0;
};

class RcEnd;

// What all such ends of a NIC share.
struct RcShared {
  RcShared(NicCore& core, RocePackets& packets);

  // Flows that wait for the read window may send again.
  void wake_readers() {
    while (!reads.full() && !readers.empty()) core.scheduler.make_ready(readers.take());
  }

  NicCore& core;
  RocePackets& packets;
  ReadWindow reads;
  WorkList readers;                               // flows that wait for the read window
  std::vector<RcEnd*> ends;                       // by slot
  OwnPages<StandbyMessages::Room> standby_rooms;  // by slot of their owners
  uint32_t standby_key = 0;
};

class RcEnd : public QueuePairEnd {
 public:
  // Connects a queue pair of Service::kConnected, and its standby lane if both ends offer one.
  // Errors: kPeer.
  static Result<void> connect(RcShared& shared, QueuePair& qp, const PeerEndpoint& peer);
  // Connects a queue pair of Service::kStandard. Errors: kInvalidArgument.
  static Result<void> connect(RcShared& shared, QueuePair& qp, const StandardPeer& peer);
  // Memory of a queue pair of this configuration.
  static Bytes memory(const QueuePairConfig& config);
  ~RcEnd() override;
  RcEnd(const RcEnd&) = delete;
  RcEnd& operator=(const RcEnd&) = delete;

  // --- QueuePairEnd ---
  size_t post(std::span<const WorkRequest> work_requests) final;
  bool has_requests() const final { return requester_.has_requests(); }
  bool has_work() const final { return recovery_.up() && requester_.has_work(); }
  bool probing() const final { return requester_.probing(); }
  Bytes next_bytes() final { return requester_.next_bytes(); }
  Bytes in_flight() const final { return requester_.in_flight(); }
  void revoke(const GoneMemory& gone) final;
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status) final {
    return requester_.pop_completed(work_request, status);
  }
  void on_timeout(Instant now) final;
  size_t take_turn(Instant now, bool waited, std::span<TxPacket> out) final {
    return shared_.core.scheduler.turn(*this, now, waited, out);
  }
  size_t transmit_control(Instant now, std::span<TxPacket> out) final;
  size_t transmit_answers(Instant now, std::span<TxPacket> out) final;
  void on_broken() override;
  const char* fault() const final;
  void set_rights(const StandardRights& rights) final { responder_.set_rights(rights); }
  StandardRest take_back() final { return {requester_.done(), responder_.take_back_receive()}; }

  // --- for RcReceiver ---
  // Packets are accepted. A broken connection repeats its NAK until the peer has received it.
  bool accepts() const {
    return qp_.state == QueuePair::State::kBroken ? responder_.refused() : recovery_.open();
  }
  bool reliable() const { return reliable_; }
  // A packet of kind kSend, kWrite, kReadRequest or kAtomic.
  void on_request(const roce::Packet& packet, Instant now);
  // An acknowledgement or a response.
  void on_answer(const roce::Packet& packet, Instant arrival, Instant now);
  void notify_congestion(Instant now);  // A packet of the peer was marked by ECN.

  // --- for FlowScheduler, NicCore and RcRecovery ---
  QueuePair& queue_pair() { return qp_; }
  RcRequester& requester() { return requester_; }
  RcResponder& responder() { return responder_; }
  RcRecovery& recovery() { return recovery_; }
  RcShared& shared() { return shared_; }
  Instant deadline() const { return recovery_.up() ? requester_.deadline() : recovery_.deadline(); }
  CompletionStatus silence_status() const { return requester_.failure(); }
  // Brings the flow up to date after the requester has changed.
  void on_progress(Bytes in_flight_before, const SendProgress& progress) {
    shared_.core.scheduler.on_progress(qp_, in_flight_before - in_flight(), progress);
    shared_.wake_readers();
  }
  size_t transmit(Instant now, Bytes budget, std::span<TxPacket> out);
  void drop_notification() { notification_due_ = false; }

 protected:
  // To qp.remote; of `peer` its limits and rights. `read_depth`: our outstanding reads and atomics.
  RcEnd(RcShared& shared, QueuePair& qp, const StandardPeer& peer, uint8_t read_depth);
  static void set_remote(const RcShared& shared, QueuePair& qp, const RcEndpoint& peer,
                         const RcLane& lane);  // Sets qp.remote.

 private:
  // What the peer's request has completed.
  virtual void on_received(const Completion& completion, Instant now);
  virtual void on_answered(Instant now);  // The requester may have completed work requests.

  void make_standby(const PeerEndpoint& peer);
  void check_failure(Instant now);
  void on_handed_over();

  RcShared& shared_;
  QueuePair& qp_;
  RcRequester requester_;
  RcResponder responder_;
  RcRecovery recovery_;
  const bool reliable_;            // false: UC
  Instant next_notification_;      // earliest next CNP
  bool notification_due_ = false;  // a marked packet has arrived
};

// A standby lane: an internal queue pair for messages about its owner's failed connections.
class StandbyEnd final : public RcEnd {
 public:
  StandbyEnd(RcShared& shared, QueuePair& qp, RcEnd& owner, const PeerEndpoint& peer);

  // False: try again when earlier messages are acknowledged.
  bool send(const RecoveryMessage& message);
  void on_broken() override;

 private:
  void on_received(const Completion& completion, Instant now) override;
  void on_answered(Instant now) override;

  RcEnd& owner_;
  StandbyMessages messages_;
};

}  // namespace pacecar
