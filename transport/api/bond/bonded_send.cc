#include <fmt/format.h>

#include <algorithm>

#include "transport/api/bond/bonded_end.h"
#include "transport/api/bond/lane_split.h"
#include "transport/api/memory.h"
#include "transport/base/check.h"
#include "transport/base/fixed_queue.h"
#include "transport/engine/clock.h"

namespace pacecar {
namespace {

class BondedSend final : public SendConnection, public BondedEnd {
 public:
  BondedSend(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper);
  ~BondedSend() override;

  Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) override;
  Result<TestResult> test(Request* request) override;
  std::string peer() const override { return lanes_.front().at.peer; }
  size_t nic() const override { return lanes_.front().at.device; }
  FlowView flow() const override;

  void forget_memory(const Memory& memory) override;

 private:
  struct Message : MessageRequest {
    const uint8_t* data = nullptr;
    Bytes size = 0;
    int tag = 0;
    const Memory* memory = nullptr;          // to recognize it in forget_memory
    std::array<uint32_t, kMaxLanes> keys{};  // of `memory`, on each lane
    LaneMask lanes = 0;                      // that carry a part; 0: not posted yet
    LaneMask left = 0;                       // whose part is not done
  };
  MessageSend& part(const Message& message, size_t lane) {
    return parts_[static_cast<size_t>(&message - messages_.data()) * lanes_.size() + lane];
  }
  void post(Message& message, Instant now);
  void collect(Instant now) override;
  void finish(Message& message);

  void on_loss() override;
  void on_failure(size_t lane, MessageFailure failure) override;
  void on_closed(size_t lane);
  void on_note(const LaneNote& note, Instant now) override;
  void on_pause(const LaneNote& note);
  void hold(bool held);
  void give_up_others(LaneMask known);
  void on_resume(const LaneNote& note, Instant now);
  uint64_t slot_of(const Message& message);
  MessageFailure failure_of(const Message& message);
  void finish_pause(Instant now) override;

  std::vector<Message> messages_;
  std::unique_ptr<MessageSend[]> parts_;
  struct Posted {
    Message* message = nullptr;
    Bytes length = 0;  // of the lane's part
  };
  std::vector<FixedQueue<Posted>> on_lane_;  // by lane, as they were posted
  std::vector<LaneMeter> meters_;
  std::array<uint64_t, kCtsSlots> done_slots_{};  // 1 + slot, by slot modulo kCtsSlots
};

BondedSend::BondedSend(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper)
    : BondedEnd(std::move(lanes), std::move(keeper)),
      messages_(kMaxSends),
      parts_(std::make_unique<MessageSend[]>(kMaxSends * lanes_.size())),
      meters_(lanes_.size()) {
  for (Message& message : messages_) message.count = 1;
  add_requests(messages_);
  for (size_t i = 0; i < lanes_.size(); ++i) on_lane_.emplace_back(kMaxSends);
  keeper_->add(*this);
}

BondedSend::~BondedSend() {
  keeper_->remove(*this);
  for (const BondLane& lane : lanes_) close_send(*lane.at.nic.engine, lane.at.connection);
}

Result<Request*> BondedSend::isend(const void* data, size_t size, int tag, const Memory* memory) {
  const Attachment& any = lanes_.front().at;
  if (!usable(any, data, size, memory)) return not_usable(any, memory);
  const std::lock_guard lock(mutex_);
  if (ended_) return tl::unexpected(*ended_);
  MessageRequest* const request = take_request();
  if (request == nullptr) return nullptr;
  auto& message = static_cast<Message&>(*request);
  message.data = static_cast<const uint8_t*>(data);
  message.size = message.sizes[0] = size;
  message.tag = tag;
  message.memory = memory;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    message.keys[i] = memory == nullptr ? 0 : memory->region(lanes_[i].member).key;
  }
  message.lanes = 0;
  if (state_ == State::kFlowing) post(message, clock_now());
  return &message;
}

void BondedSend::post(Message& message, Instant now) {
  const LaneMask alive = alive_lanes(lanes_);
  const std::array<Bytes, kMaxLanes> lengths = split(message.size, meters_, alive);
  message.lanes = message.left = alive;
  Bytes offset = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    MessageSend& own = part(message, i);
    own.operation = {.data = message.data + offset,
                     .size = lengths[i],
                     .tag = message.tag,
                     .key = message.keys[i],
                     .offset = offset};
    own.slot = MessageSend::kNoSlot;
    own.set(MessageRequest::State::kPending);
    meters_[i].on_posted(lengths[i], now);
    PACECAR_CHECK(on_lane_[i].push({&message, lengths[i]}));
    Engine& engine = *lanes_[i].at.nic.engine;
    engine.sends().push(lanes_[i].at.connection, own);
    engine.submitted();
    offset += lengths[i];
  }
}

Result<TestResult> BondedSend::test(Request* request) {
  const std::lock_guard lock(mutex_);
  auto& message = static_cast<Message&>(*request);
  if (message.state() == MessageRequest::State::kPending) {
    progress();
    collect(clock_now());
  }
  return outcome(message);
}

void BondedSend::collect(Instant now) {
  for (size_t i = 0; i < lanes_.size() && !ended_; ++i) {
    while (lanes_[i].alive && !on_lane_[i].empty() && !ended_) {
      const Posted posted = on_lane_[i].front();
      Message& message = *posted.message;
      const MessageSend& own = part(message, i);
      const MessageRequest::State state = own.state();
      if (state == MessageRequest::State::kPending) break;
      if (state == MessageRequest::State::kFailed) {
        const MessageFailure failure = own.failure;
        if (failure == MessageFailure::kPeerSilent) return give_up(i, "");
        if (failure == MessageFailure::kPeerClosed) return on_closed(i);
      }
      on_lane_[i].pop_front();
      meters_[i].on_done(posted.length, now);
      message.left &= static_cast<LaneMask>(~bit_of(i));
      if (message.left == 0) finish(message);
    }
  }
}

void BondedSend::finish(Message& message) {
  const uint64_t slot = slot_of(message);
  if (slot != MessageSend::kNoSlot) done_slots_[slot % kCtsSlots] = slot + 1;
  message.failure = failure_of(message);
  message.set(message.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                       : MessageRequest::State::kFailed);
}

// The slot of a message, which is the same on all lanes that have matched it. Call it only if
// nothing of the message is outstanding.
uint64_t BondedSend::slot_of(const Message& message) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if ((message.lanes & bit_of(i)) == 0) continue;
    const uint64_t slot = part(message, i).slot;
    if (slot != MessageSend::kNoSlot) return slot;
  }
  return MessageSend::kNoSlot;
}

// Why the message has failed, apart from lost lanes.
MessageFailure BondedSend::failure_of(const Message& message) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const MessageSend& own = part(message, i);
    if ((message.lanes & bit_of(i)) == 0 || own.state() != MessageRequest::State::kFailed) continue;
    if (own.failure != MessageFailure::kPeerSilent) return own.failure;
  }
  return MessageFailure::kNone;
}

FlowView BondedSend::flow() const {
  const std::lock_guard lock(mutex_);
  FlowView all;
  for (const BondLane& lane : lanes_) {
    if (!lane.alive) continue;
    const FlowView one = flow_of(lane.at);
    if (one.rtt_us >= all.rtt_us) all.limited_by = one.limited_by;  // of the slowest
    all.rate_bps += one.rate_bps;
    all.grant_bps += one.grant_bps;
    all.grant_age_ns = std::max(all.grant_age_ns, one.grant_age_ns);
    all.share_bps += one.share_bps;
    all.core_bps += one.core_bps;
    all.budget_bps += one.budget_bps;
    all.rtt_us = std::max(all.rtt_us, one.rtt_us);
  }
  return all;
}

void BondedSend::on_loss() {
  if (state_ == State::kFlowing) state_ = State::kComplaining;
  if (state_ == State::kComplaining) send_note(NoteKind::kComplaint, lost_lanes(lanes_));
}

void BondedSend::on_failure(size_t lane, MessageFailure failure) {
  failure == MessageFailure::kPeerClosed ? on_closed(lane) : end(failure, lane);
}

// The receiver has closed, and its close word has the number of messages that it had. Messages that
// this lane has not matched are not among them. Once the receiver may have posted its buffers
// again, the number refers to those, so no message counts as received.
void BondedSend::on_closed(size_t lane) {
  const uint64_t completed = lanes_[lane].at.call(&Messenger::completed_by_peer);
  const bool paused = state_ == State::kPausing || state_ == State::kPaused;
  for (Message& message : pending<Message>()) {
    if ((message.lanes & bit_of(lane)) == 0 || paused) continue;
    const uint64_t slot = part(message, lane).slot;
    if (slot == MessageSend::kNoSlot || slot >= completed) continue;
    if (message.state() == MessageRequest::State::kPending) {
      message.set(MessageRequest::State::kDone);
    }
  }
  end(MessageFailure::kPeerClosed, lane);
}

void BondedSend::on_note(const LaneNote& note, Instant now) {
  const auto kind = static_cast<NoteKind>(note.kind);
  if (kind == NoteKind::kPause) on_pause(note);
  if (kind == NoteKind::kResume) on_resume(note, now);
}

void BondedSend::on_pause(const LaneNote& note) {
  if (note.epoch <= epoch_) return;
  epoch_ = note.epoch;
  state_ = State::kPausing;
  hold(true);
  give_up_others(static_cast<LaneMask>(~note.lanes));
}

void BondedSend::hold(bool held) {
  for (const BondLane& lane : lanes_) {
    if (lane.alive) lane.at.call(&Messenger::hold_sends, held);
  }
}

// Gives up the lanes that are not `known` to the receiver.
void BondedSend::give_up_others(LaneMask known) {
  for (size_t i = 0; i < lanes_.size() && !ended_; ++i) {
    if (lanes_[i].alive && (known & bit_of(i)) == 0) give_up(i, "the receiver has lost it");
  }
}

void BondedSend::finish_pause(Instant /*now*/) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].alive && sight(i).writes > 0) return;
  }
  state_ = State::kPaused;
  send_note(NoteKind::kPaused, lost_lanes(lanes_));
}

void BondedSend::on_resume(const LaneNote& note, Instant now) {
  if (state_ != State::kPaused || note.epoch != epoch_) return;  // a repeated note
  give_up_others(note.lanes);
  if (ended_) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    on_lane_[i].clear();
    meters_[i] = LaneMeter();
    if (lanes_[i].alive) lanes_[i].at.call(&Messenger::renew_sends, note.next);
  }
  hold(false);
  uint64_t lost = 0;
  for (uint64_t slot = note.next - std::min<uint64_t>(note.next, kCtsSlots); slot < note.next;
       ++slot) {
    if (!slot_done(note, slot) && done_slots_[slot % kCtsSlots] == slot + 1) ++lost;
  }
  if (lost > 0) {
    return end({ErrorCode::kPeer,
                fmt::format("peer {}: {} messages were acknowledged by a NIC that was lost before "
                            "their receiver had them: start the job again",
                            peer(), lost)});
  }
  state_ = State::kFlowing;
  send_note(NoteKind::kResumed, alive_lanes(lanes_));
  for (Message& message : pending<Message>()) {
    if (message.state() != MessageRequest::State::kPending) continue;
    const uint64_t slot = slot_of(message);
    if (slot != MessageSend::kNoSlot && slot_done(note, slot)) {
      finish(message);
    } else if (message.memory == nullptr && message.size > 0) {
      return end(MessageFailure::kMemoryGone);
    } else {
      post(message, now);
    }
  }
  // Lanes that the receiver counts as alive, and this side does not.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive && (note.lanes & bit_of(i)) != 0) return on_loss();
  }
}

// A posted message cannot be cancelled, as lanes may have sent their parts: the connection ends.
void BondedSend::forget_memory(const Memory& memory) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  collect(clock_now());
  bool under_way = false;
  for (Message& message : pending<Message>()) {
    if (message.memory != &memory) continue;
    message.memory = nullptr;
    under_way |= message.lanes != 0 && message.state() == MessageRequest::State::kPending;
  }
  if (!under_way || ended_) return;
  hold(true);
  end(MessageFailure::kMemoryGone);
}

}  // namespace

std::unique_ptr<SendConnection> make_bonded_send(std::vector<BondLane> lanes,
                                                 std::shared_ptr<BondKeeper> keeper) {
  return std::make_unique<BondedSend>(std::move(lanes), std::move(keeper));
}

}  // namespace pacecar
