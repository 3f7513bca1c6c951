#include <algorithm>

#include "transport/api/bond/bonded_end.h"
#include "transport/api/memory.h"
#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

class BondedReceive final : public ReceiveConnection, public BondedEnd {
 public:
  BondedReceive(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper);
  ~BondedReceive() override;

  Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) override;
  Result<TestResult> test(Request* request) override;
  std::string peer() const override { return lanes_.front().at.peer; }
  size_t nic() const override { return lanes_.front().at.device; }

  void forget_memory(const Memory& memory) override;

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    Bytes size = 0;
    int tag = 0;
    const Memory* memory = nullptr;                  // to recognize it in forget_memory
    std::array<RemoteAddress, kMaxLanes> remotes{};  // in it
    bool filled = false;                             // it was complete when a lane was lost
    Bytes received = 0;                              // bytes of the message, once it is complete
  };
  struct Receive : MessageRequest {
    std::array<Buffer, kMaxReceiveBuffers> buffers{};
    LaneMask lanes = 0;       // on which it was posted; 0: not yet
    uint64_t first_slot = 0;  // of the buffers that were posted
  };
  // The messages received in one posted buffer, over all lanes.
  struct Arrived {
    bool all = true;
    MessageFailure failure = MessageFailure::kNone;
    Bytes bytes = 0;
  };

  MessageReceive& part(const Receive& receive, size_t lane) {
    return parts_[static_cast<size_t>(&receive - receives_.data()) * lanes_.size() + lane];
  }
  void post(Receive& receive);
  bool finish_if_done(Receive& receive);
  void finish(Receive& receive);
  uint64_t first_unfinished_slot() const;
  void collect(Instant now) override;

  void on_loss() override;
  void on_failure(size_t lane, MessageFailure failure) override;
  void on_note(const LaneNote& note, Instant now) override;
  bool sender_paused() const;
  void begin_pause();
  void finish_pause(Instant now) override;
  void count_arrived(size_t lane, std::vector<std::array<Arrived, kMaxReceiveBuffers>>& arrived);

  std::vector<Receive> receives_;
  std::unique_ptr<MessageReceive[]> parts_;
  bool lost_more_ = false;  // another lane since the pause
  uint64_t next_slot_ = 0;  // the same on all lanes
};

BondedReceive::BondedReceive(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper)
    : BondedEnd(std::move(lanes), std::move(keeper)),
      receives_(kMaxReceives),
      parts_(std::make_unique<MessageReceive[]>(kMaxReceives * lanes_.size())) {
  add_requests(receives_);
  keeper_->add(*this);
}

BondedReceive::~BondedReceive() {
  keeper_->remove(*this);
  const uint64_t completed = first_unfinished_slot();
  for (const BondLane& lane : lanes_) {
    close_receive(*lane.at.nic.engine, lane.at.connection, completed);
  }
}

// All slots below the result are complete on all lanes.
uint64_t BondedReceive::first_unfinished_slot() const {
  for (const Receive& receive : pending<Receive>()) {
    if (receive.lanes != 0 && receive.state() != MessageRequest::State::kDone) {
      return receive.first_slot;
    }
  }
  return next_slot_;
}

Result<Request*> BondedReceive::irecv(std::span<const ReceiveBuffer> buffers) {
  RETURN_IF_ERROR(check_buffers(lanes_.front().at, buffers));
  const std::lock_guard lock(mutex_);
  if (ended_) return tl::unexpected(*ended_);
  MessageRequest* const request = take_request();
  if (request == nullptr) return nullptr;
  auto& receive = static_cast<Receive&>(*request);
  receive.count = static_cast<uint8_t>(buffers.size());
  receive.lanes = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ReceiveBuffer& given = buffers[i];
    const bool empty = given.size == 0;
    auto* const data = static_cast<uint8_t*>(given.data);
    receive.buffers[i] = {.data = data,
                          .size = given.size,
                          .tag = given.tag,
                          .memory = empty ? nullptr : given.memory};
    for (size_t lane = 0; lane < lanes_.size() && !empty; ++lane) {
      const MemoryRegion& region = given.memory->region(lanes_[lane].member);
      receive.buffers[i].remotes[lane] = remote_address_of(region, data);
    }
  }
  if (state_ != State::kPausing) post(receive);
  return &receive;
}

// Posts the unfilled buffers on all lanes.
void BondedReceive::post(Receive& receive) {
  const auto buffers = std::span(receive.buffers).first(receive.count);
  receive.lanes = alive_lanes(lanes_);
  receive.first_slot = next_slot_;
  next_slot_ += static_cast<uint64_t>(std::ranges::count(buffers, false, &Buffer::filled));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    MessageReceive& own = part(receive, i);
    own.clear();
    for (const Buffer& buffer : buffers) {
      if (!buffer.filled) own.add(buffer.data, buffer.size, buffer.tag, buffer.remotes[i]);
    }
    own.set(MessageRequest::State::kPending);
    Engine& engine = *lanes_[i].at.nic.engine;
    engine.receives().push(lanes_[i].at.connection, own);
    // The peer may wait for the first receive; it can continue with the buffers of earlier ones.
    if (pending<Receive>().size() == 1) {
      engine.submitted();
    } else {
      engine.wake_keeper();
    }
  }
}

Result<TestResult> BondedReceive::test(Request* request) {
  const std::lock_guard lock(mutex_);
  auto& receive = static_cast<Receive&>(*request);
  if (receive.state() == MessageRequest::State::kPending && !finish_if_done(receive)) {
    progress();
    finish_if_done(receive);
  }
  return outcome(receive);
}

// Finishes a receive if all lanes are done with it; returns whether they are.
bool BondedReceive::finish_if_done(Receive& receive) {
  if (receive.lanes == 0 || ended_) return false;
  LaneMask left = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if ((receive.lanes & bit_of(i)) == 0) continue;
    const MessageRequest& own = part(receive, i);
    const MessageRequest::State state = own.state();
    if (state == MessageRequest::State::kPending) left |= bit_of(i);
    if (state != MessageRequest::State::kFailed) continue;
    if (own.failure == MessageFailure::kPeerSilent) {
      left |= bit_of(i);
      if (lanes_[i].alive) give_up(i, "");
    } else if (own.failure == MessageFailure::kTooLong ||
               own.failure == MessageFailure::kPeerAbandoned) {
      receive.failure = own.failure;
    } else {
      end(own.failure, i);
    }
    if (ended_) return false;
  }
  if (left != 0) return false;
  uint32_t posted = 0;
  for (Buffer& buffer : std::span(receive.buffers).first(receive.count)) {
    if (buffer.filled) continue;
    buffer.received = 0;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if ((receive.lanes & bit_of(i)) != 0) buffer.received += part(receive, i).sizes[posted];
    }
    ++posted;
  }
  finish(receive);
  return true;
}

// On each lane the peer may write a whole buffer, but the parts of one message must fit together.
void BondedReceive::finish(Receive& receive) {
  for (size_t i = 0; i < receive.count; ++i) {
    const Buffer& buffer = receive.buffers[i];
    if (buffer.received > buffer.size) return end(MessageFailure::kPeerProtocol);
    receive.sizes[i] = buffer.received;
  }
  receive.set(receive.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                       : MessageRequest::State::kFailed);
}

void BondedReceive::collect(Instant /*now*/) {
  const auto receives = pending<Receive>();
  if (!receives.empty() && receives.front().state() == MessageRequest::State::kPending) {
    finish_if_done(receives.front());
  }
}

void BondedReceive::on_failure(size_t lane, MessageFailure failure) {
  for (Receive& receive : pending<Receive>()) {  // what arrived before the failure counts
    if (receive.state() == MessageRequest::State::kPending) finish_if_done(receive);
    if (ended_) return;
  }
  end(failure, lane);
}

void BondedReceive::on_loss() {
  if (state_ == State::kFlowing) return begin_pause();
  if (state_ == State::kResuming) lost_more_ = true;
}

void BondedReceive::begin_pause() {
  lost_more_ = false;
  state_ = State::kPausing;
  ++epoch_;
  send_note(NoteKind::kPause, lost_lanes(lanes_));
}

void BondedReceive::on_note(const LaneNote& note, Instant /*now*/) {
  const auto kind = static_cast<NoteKind>(note.kind);
  const bool now = note.epoch == epoch_;
  // A sender that complains in this epoch has resumed in it, even if its note was lost.
  if (now && state_ == State::kResuming &&
      (kind == NoteKind::kResumed || kind == NoteKind::kComplaint)) {
    state_ = State::kFlowing;
    if (lost_more_) begin_pause();
  }
  if (kind == NoteKind::kComplaint || kind == NoteKind::kPaused) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].alive && (note.lanes & bit_of(i)) != 0) give_up(i, "the sender has lost it");
      if (ended_) return;
    }
  }
}

// Whether the sender has nothing outstanding, and all writes that were acknowledged to it are
// counted here. (A NIC may acknowledge a write before its host polls the completion.)
bool BondedReceive::sender_paused() const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    const std::optional<LaneNote> note = last_note(i);
    const bool paused =
        note && note->epoch == epoch_ && static_cast<NoteKind>(note->kind) == NoteKind::kPaused;
    if (!paused) return false;
    const Attachment& at = lanes_[i].at;
    const uint64_t counted = at.nic.engine->exclusively(
        [&](const Messenger& messenger) { return messenger.receives(at.connection).moves(); });
    if (counted < note->next) return false;
  }
  return true;
}

// Counts the buffers that one lane is done with.
void BondedReceive::count_arrived(size_t lane,
                                  std::vector<std::array<Arrived, kMaxReceiveBuffers>>& arrived) {
  const Attachment& at = lanes_[lane].at;
  at.nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
    if (lanes_[lane].alive) messenger.poll(now);
    const auto receives = pending<Receive>();
    for (size_t i = 0; i < receives.size(); ++i) {
      const Receive& receive = receives[i];
      if ((receive.lanes & bit_of(lane)) == 0) continue;
      const MessageReceive& own = part(receive, lane);
      size_t posted = 0;
      for (size_t k = 0; k < receive.count; ++k) {
        if (receive.buffers[k].filled) continue;
        const MessageReceive::Buffer& buffer = own.buffers[posted];
        arrived[i][k].all &= buffer.done;
        if (buffer.failure != MessageFailure::kNone) arrived[i][k].failure = buffer.failure;
        arrived[i][k].bytes += own.sizes[posted++];
      }
    }
    if (!lanes_[lane].alive) return;
    PACECAR_CHECK(messenger.receives(at.connection).posted_slots() == next_slot_);
    messenger.renew_receives(at.connection, now);
  });
}

// Posts all unfilled buffers again, on the remaining lanes.
void BondedReceive::finish_pause(Instant /*now*/) {
  if (!sender_paused()) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {  // a failed lane has seen fewer slots
    if (lanes_[i].alive) healthy(i, sight(i).failure);
    if (ended_) return;
  }
  std::vector<std::array<Arrived, kMaxReceiveBuffers>> arrived(pending<Receive>().size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) count_arrived(lane, arrived);
  LaneNote note{.epoch = epoch_,
                .kind = static_cast<uint8_t>(NoteKind::kResume),
                .lanes = alive_lanes(lanes_),
                .next = next_slot_,
                .done = {~0ULL, ~0ULL, ~0ULL, ~0ULL}};
  const auto receives = pending<Receive>();
  for (size_t i = 0; i < receives.size(); ++i) {
    Receive& receive = receives[i];
    if (receive.lanes == 0 || receive.state() != MessageRequest::State::kPending) continue;
    uint64_t slot = receive.first_slot;
    for (size_t k = 0; k < receive.count; ++k) {
      Buffer& buffer = receive.buffers[k];
      if (buffer.filled) continue;
      buffer.filled = arrived[i][k].all;
      buffer.received = arrived[i][k].bytes;
      if (buffer.filled && arrived[i][k].failure != MessageFailure::kNone) {
        receive.failure = arrived[i][k].failure;
      }
      const uint64_t bit = slot++ % kCtsSlots;
      if (!buffer.filled) note.done[bit / 64] &= ~(1ULL << bit % 64);
    }
  }
  send_note(note);
  state_ = State::kResuming;
  for (Receive& receive : pending<Receive>()) {
    if (receive.state() != MessageRequest::State::kPending) continue;
    const auto buffers = std::span(receive.buffers).first(receive.count);
    if (std::ranges::all_of(buffers, &Buffer::filled)) {
      finish(receive);
    } else if (std::ranges::any_of(buffers, [](const Buffer& buffer) {
                 return !buffer.filled && buffer.size > 0 && buffer.memory == nullptr;
               })) {
      return end(MessageFailure::kMemoryGone);
    } else {
      post(receive);
    }
  }
}

void BondedReceive::forget_memory(const Memory& memory) {
  const std::lock_guard lock(mutex_);
  for (Receive& receive : pending<Receive>()) {
    for (Buffer& buffer : receive.buffers) {
      if (buffer.memory == &memory) buffer.memory = nullptr;
    }
  }
}

}  // namespace

std::unique_ptr<ReceiveConnection> make_bonded_receive(std::vector<BondLane> lanes,
                                                       std::shared_ptr<BondKeeper> keeper) {
  return std::make_unique<BondedReceive>(std::move(lanes), std::move(keeper));
}

}  // namespace pacecar
