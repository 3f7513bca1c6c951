// StandbyMessages: the memory for the messages of a standby lane (transport/nic/lanes), an internal
// queue pair of the NIC. Bounded: kMessages in flight each way; more wait. Pure; one owner.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/nic.h"
#include "transport/softnic/rc/rc_requester.h"

namespace pacecar {

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

}  // namespace pacecar
