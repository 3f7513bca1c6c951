// StandbyLane: a further RC connection of a queue pair, over which the two ends exchange messages
// about failed lanes. Nothing is sent on it in normal operation, so an outage that breaks the lanes
// does not break it. It has small receive requests of its own. Bounded: at most kMessages
// outstanding in each direction. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/fresh_pages.h"
#include "transport/verbs/lane.h"

namespace pacecar {

class StandbyLane {
 public:
  static constexpr uint32_t kMessages = 8;
  // The most completions that it may have outstanding.
  static constexpr uint32_t kCompletions = 2 * kMessages;
  static constexpr uint8_t kLaneNumber = 0x7F;  // Used in place of a lane's number.

  // For the queue pair `id`, whose lanes have the configuration `lanes`.
  static Result<std::unique_ptr<StandbyLane>> create(const VerbsDevice& device,
                                                     const LaneConfig& lanes, QueuePairId id,
                                                     uint32_t flow_label);
  // Memory of a standby lane.
  static constexpr Bytes memory() {
    return sizeof(StandbyLane) + sizeof(Buffers) + kCompletions * kDeviceWorkRequestBytes;
  }

  const RcLane& end() const { return lane_.local; }
  // Errors: as connect_lane.
  Result<void> connect(const VerbsDevice& device, const RcEndpoint& remote, const RcLane& end);
  bool usable() const { return connected_ && !failed_; }

  // False: try again when earlier messages have completed; never, if the lane is not usable.
  bool send(const RecoveryMessage& message);
  // A completion's meaning: the peer's message, if there is one. A failure makes the lane unusable.
  struct Event {
    bool received = false;
    std::optional<RecoveryMessage> message;  // nullopt: it cannot be decoded
  };
  Event on_completion(const ibv_wc& completion);
  void stop();

 private:
  struct Buffers {
    std::array<std::array<uint8_t, RecoveryMessage::kBytes>, kMessages> sent;
    std::array<std::array<uint8_t, 64>, kMessages> received;
  };

  StandbyLane(const LaneConfig& lanes, QueuePairId id);
  int receive_into(uint32_t slot);
  VerbsWorkId work_id(bool receive, uint32_t slot) const {
    return {.queue_pair = id_, .lane = kLaneNumber, .receive = receive, .sequence = slot};
  }

  LaneConfig config_;
  QueuePairId id_;
  // The connection is destroyed before the memory that it uses.
  OwnPages<Buffers> buffers_;
  MemoryHandle memory_;
  Lane lane_;
  uint32_t sent_ = 0;
  uint32_t in_flight_ = 0;  // of sent_
  bool connected_ = false;
  bool failed_ = false;
};

}  // namespace pacecar
