#include <algorithm>
#include <mutex>
#include <optional>

#include "transport/api/bond/bonded.h"
#include "transport/api/failure.h"
#include "transport/api/memory.h"
#include "transport/api/stall.h"
#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

class BondedReceive final : public ReceiveConnection, public Tended {
 public:
  BondedReceive(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper);
  ~BondedReceive() override;

  Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) override;
  Result<TestResult> test(Request* request) override;
  std::string peer() const override { return lanes_.front().at.peer; }
  size_t nic() const override { return lanes_.front().at.device; }

  bool tend(Instant now) override;
  void forget_memory(const Memory& memory) override;

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    Bytes size = 0;
    int tag = 0;
    const Memory* memory = nullptr;                  // to recognize it in forget_memory
    std::array<RemoteAddress, kMaxLanes> remotes{};  // in it
    bool filled = false;                             // before it was posted again
    Bytes received = 0;                              // then
  };
  struct Receive : MessageRequest {
    std::array<Buffer, kMaxReceiveBuffers> buffers{};
    size_t buffer_count = 0;
    LaneMask lanes = 0;       // on which it was posted; 0: not yet
    uint64_t first_slot = 0;  // of its unfilled buffers, then
  };
  enum class State : uint8_t {
    kFlowing,
    kPausing,   // until nothing is outstanding
    kResuming,  // until the sender knows what to send again
  };
  // Arrivals of one posted buffer, over all lanes.
  struct Arrived {
    bool all = true;
    MessageFailure failure = MessageFailure::kNone;
    Bytes bytes = 0;
  };

  MessageRequest& part(const Receive& receive, size_t lane) {
    return parts_[static_cast<size_t>(&receive - receives_.data()) * lanes_.size() + lane];
  }
  void post(Receive& receive);
  bool look(Receive& receive);
  void finish(Receive& receive);
  uint64_t first_unfinished_slot() const;

  void lose(size_t lane, const std::string& cause);
  void end(Error error);
  void fail(MessageFailure failure, size_t lane);
  void on_note(const LaneNote& note);
  bool healthy(size_t lane, MessageFailure failure);
  bool sender_paused() const;
  void begin_pause();
  void resume();
  void take_stock(size_t lane, std::vector<std::array<Arrived, kMaxReceiveBuffers>>& arrived);
  void watch(Instant now);
  void send_note(NoteKind kind, LaneMask lanes);

  mutable std::mutex mutex_;
  std::vector<BondLane> lanes_;
  const std::shared_ptr<BondKeeper> keeper_;
  std::vector<Receive> receives_;
  std::unique_ptr<MessageRequest[]> parts_;
  std::vector<Receive*> free_;
  std::vector<Receive*> pending_;  // in order of posting, until tested as done
  std::vector<StallWatch> stalls_;
  LaneWatch watch_;
  LaneNotes notes_;
  State state_ = State::kFlowing;
  bool lost_more_ = false;  // another lane since the pause
  uint32_t epoch_ = 0;
  uint64_t next_slot_ = 0;  // the same on all lanes
  std::optional<Error> ended_;
};

BondedReceive::BondedReceive(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper)
    : lanes_(std::move(lanes)),
      keeper_(std::move(keeper)),
      receives_(kMaxReceives),
      parts_(std::make_unique<MessageRequest[]>(kMaxReceives * lanes_.size())),
      stalls_(lanes_.size()),
      watch_(lanes_.front().at.nic.timeout / 5),
      notes_(lanes_, &Messenger::note_to_receiver, &Messenger::write_to_sender) {
  for (Receive& receive : receives_) free_.push_back(&receive);
  pending_.reserve(kMaxReceives);
  keeper_->add(*this);
}

BondedReceive::~BondedReceive() {
  keeper_->remove(*this);
  const uint64_t completed = first_unfinished_slot();
  for (const BondLane& lane : lanes_) {
    Engine& engine = *lane.at.nic.engine;
    engine.exclusively([&](Messenger& messenger, Nic&, Instant) {
      engine.receives().detach(lane.at.connection);
      messenger.close_receive(lane.at.connection, completed);
    });
    engine.submitted();
  }
}

// All slots below it are complete, on all lanes.
uint64_t BondedReceive::first_unfinished_slot() const {
  for (const Receive* receive : pending_) {
    if (receive->lanes != 0 && receive->state() != MessageRequest::State::kDone) {
      return receive->first_slot;
    }
  }
  return next_slot_;
}

// --- messages ---

Result<Request*> BondedReceive::irecv(std::span<const ReceiveBuffer> buffers) {
  RETURN_IF_ERROR(check_buffers(lanes_.front().at, buffers));
  const std::lock_guard lock(mutex_);
  if (ended_) return tl::unexpected(*ended_);
  if (free_.empty()) return nullptr;
  Receive& receive = *free_.back();
  free_.pop_back();
  receive.buffer_count = buffers.size();
  receive.lanes = 0;
  receive.failure = MessageFailure::kNone;
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
  receive.set(MessageRequest::State::kPending);
  pending_.push_back(&receive);
  if (state_ != State::kPausing) post(receive);
  return &receive;
}

// Posts the unfilled buffers on all lanes.
void BondedReceive::post(Receive& receive) {
  ReceiveOperation operation;
  std::array<const Buffer*, kMaxReceiveBuffers> posted{};
  for (const Buffer& buffer : std::span(receive.buffers).first(receive.buffer_count)) {
    if (buffer.filled) continue;
    posted[operation.count] = &buffer;
    operation.buffers[operation.count++] = {
        .data = buffer.data, .size = buffer.size, .tag = buffer.tag};
  }
  receive.lanes = alive_lanes(lanes_);
  receive.first_slot = next_slot_;
  next_slot_ += operation.count;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    for (uint32_t k = 0; k < operation.count; ++k) {
      operation.buffers[k].set_remote(posted[k]->remotes[i]);
    }
    operation.request = &part(receive, i);
    operation.request->set(MessageRequest::State::kPending);
    Engine& engine = *lanes_[i].at.nic.engine;
    PACECAR_CHECK(engine.receives().push(lanes_[i].at.connection, operation));
    // The peer can continue with the buffers that are advertised.
    if (pending_.size() == 1) {
      engine.submitted();
    } else {
      engine.noted();
    }
  }
}

Result<TestResult> BondedReceive::test(Request* request) {
  const std::lock_guard lock(mutex_);
  auto& receive = static_cast<Receive&>(*request);
  if (receive.state() == MessageRequest::State::kPending && !look(receive)) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Attachment& at = lanes_[i].at;
      if (lanes_[i].alive) at.nic.engine->progress();
      stalls_[i].look(at, "receive from", [&at](const Messenger& messenger) {
        return messenger.receive_stall(at.connection);
      });
    }
    look(receive);
  }
  TestResult result;
  const MessageRequest::State state = receive.state();
  if (state == MessageRequest::State::kPending) return result;
  if (state == MessageRequest::State::kFree) return tested_again();
  result.done = true;
  result.count = static_cast<int>(receive.buffer_count);
  std::ranges::copy(receive.sizes, result.sizes.begin());
  const MessageFailure failure = receive.failure;
  std::erase(pending_, &receive);
  receive.set(MessageRequest::State::kFree);
  if (state == MessageRequest::State::kDone) {
    free_.push_back(&receive);
    return result;
  }
  if (ended_) return tl::unexpected(*ended_);
  free_.push_back(&receive);
  const Attachment& at = lanes_.front().at;
  return tl::unexpected(describe(failure, at.peer, at.nic.timeout, ""));
}

// Whether all lanes are done with it; then finishes it.
bool BondedReceive::look(Receive& receive) {
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
      if (lanes_[i].alive) lose(i, "");
    } else if (own.failure == MessageFailure::kTooLong ||
               own.failure == MessageFailure::kPeerAbandoned) {
      receive.failure = own.failure;
    } else {
      fail(own.failure, i);
    }
    if (ended_) return false;
  }
  if (left != 0) return false;
  uint32_t posted = 0;
  for (Buffer& buffer : std::span(receive.buffers).first(receive.buffer_count)) {
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

// Each lane's peer may write all of a buffer, but they share one message.
void BondedReceive::finish(Receive& receive) {
  for (size_t i = 0; i < receive.buffer_count; ++i) {
    const Buffer& buffer = receive.buffers[i];
    if (buffer.received > buffer.size) return fail(MessageFailure::kPeerProtocol, 0);
    receive.sizes[i] = buffer.received;
  }
  receive.set(receive.failure == MessageFailure::kNone ? MessageRequest::State::kDone
                                                       : MessageRequest::State::kFailed);
}

// --- lost lanes ---

bool BondedReceive::tend(Instant now) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  if (!pending_.empty() && pending_.front()->state() == MessageRequest::State::kPending) {
    look(*pending_.front());
  }
  if (const auto note = notes_.receive(lanes_); note && !ended_) {
    watch_.on_sign(now);
    on_note(*note);
  }
  if (!ended_) watch(now);
  if (!ended_ && state_ == State::kPausing && sender_paused()) resume();
  if (ended_) return false;
  notes_.deliver(lanes_);
  return state_ != State::kFlowing || !notes_.delivered(lanes_);
}

// Also lanes without data may break or be closed.
void BondedReceive::watch(Instant now) {
  if (pending_.empty() && state_ == State::kFlowing) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    const auto seen =
        lanes_[i].at.nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant) {
          return messenger.receive_lane(lanes_[i].at.connection);
        });
    const bool closed = seen.closed && state_ != State::kFlowing;
    if (healthy(i, closed ? MessageFailure::kPeerClosed : seen.failure) &&
        watch_.look(i, {.waits = seen.writes > 0, .life = seen.life}, now)) {
      lose(i, "nothing is acknowledged on it");
    }
    if (ended_) return;
  }
  if (watch_.doubts(now)) notes_.repeat();
}

// Whether the lane works; if not, begins the pause.
bool BondedReceive::healthy(size_t lane, MessageFailure failure) {
  if (failure == MessageFailure::kNone) return true;
  if (failure == MessageFailure::kPeerSilent) {
    lose(lane, "");
    return false;
  }
  for (Receive* receive : pending_) {  // what arrived before the failure counts
    if (receive->state() == MessageRequest::State::kPending) look(*receive);
    if (ended_) return false;
  }
  fail(failure, lane);
  return false;
}

void BondedReceive::lose(size_t lane, const std::string& cause) {
  const Attachment& at = lanes_[lane].at;
  lanes_[lane].alive = false;
  // From here on it receives nothing more, so what it has received is final.
  const std::string fault = break_lane(at, &Messenger::break_receive, &Messenger::receive_fault);
  if (alive_lanes(lanes_) == 0) {
    return end(describe(MessageFailure::kPeerSilent, at.peer, at.nic.timeout, fault));
  }
  warn_of_loss(lanes_, lane, "receive from", cause.empty() ? fault : cause);
  if (state_ == State::kFlowing) return begin_pause();
  if (state_ == State::kResuming) lost_more_ = true;
}

void BondedReceive::begin_pause() {
  lost_more_ = false;
  state_ = State::kPausing;
  ++epoch_;
  send_note(NoteKind::kPause, lost_lanes(lanes_));
}

void BondedReceive::send_note(NoteKind kind, LaneMask lanes) {
  notes_.send({.epoch = epoch_, .kind = static_cast<uint8_t>(kind), .lanes = lanes});
  keeper_->hurry();
}

// All pending requests fail.
void BondedReceive::end(Error error) {
  ended_ = std::move(error);
  for (Receive* receive : pending_) {
    if (receive->state() == MessageRequest::State::kPending) {
      receive->set(MessageRequest::State::kFailed);
    }
  }
}

void BondedReceive::fail(MessageFailure failure, size_t lane) {
  const Attachment& at = lanes_[lane].at;
  end(describe(failure, at.peer, at.nic.timeout, ""));
}

void BondedReceive::on_note(const LaneNote& note) {
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
      if (lanes_[i].alive && (note.lanes & bit_of(i)) != 0) lose(i, "the sender has lost it");
      if (ended_) return;
    }
  }
}

// Whether the sender has nothing outstanding, and all writes that were acknowledged to it are
// counted here. (A NIC may acknowledge a write before its host polls the completion.)
bool BondedReceive::sender_paused() const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    const std::optional<LaneNote> note = notes_.last(i);
    const bool paused =
        note && note->epoch == epoch_ && static_cast<NoteKind>(note->kind) == NoteKind::kPaused;
    if (!paused) return false;
    const Attachment& at = lanes_[i].at;
    const uint64_t counted =
        at.nic.engine->exclusively([&](const Messenger& messenger, Nic&, Instant) {
          return messenger.receives(at.connection).moves();
        });
    if (counted < note->next) return false;
  }
  return true;
}

// Counts the buffers that one lane is done with.
void BondedReceive::take_stock(size_t lane,
                               std::vector<std::array<Arrived, kMaxReceiveBuffers>>& arrived) {
  const Attachment& at = lanes_[lane].at;
  at.nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant now) {
    if (lanes_[lane].alive) messenger.poll(now);
    const ReceiveQueue& queue = messenger.receives(at.connection);
    for (size_t i = 0; i < pending_.size(); ++i) {
      const Receive& receive = *pending_[i];
      if ((receive.lanes & bit_of(lane)) == 0) continue;
      uint64_t slot = receive.first_slot;
      for (size_t k = 0; k < receive.buffer_count; ++k) {
        if (receive.buffers[k].filled) continue;
        arrived[i][k].all &= queue.slot_done(slot);
        if (const MessageFailure failure = queue.slot_failure(slot);
            failure != MessageFailure::kNone) {
          arrived[i][k].failure = failure;
        }
        arrived[i][k].bytes += queue.slot_bytes(slot);
        ++slot;
      }
    }
    if (!lanes_[lane].alive) return;
    PACECAR_CHECK(queue.posted_slots() == next_slot_);
    messenger.renew_receives(at.connection, now);
  });
}

// Posts all unfilled buffers again, on the remaining lanes.
void BondedReceive::resume() {
  for (size_t i = 0; i < lanes_.size(); ++i) {  // a failed lane has seen fewer slots
    if (!lanes_[i].alive) continue;
    const auto seen =
        lanes_[i].at.nic.engine->exclusively([&](Messenger& messenger, Nic&, Instant) {
          return messenger.receive_lane(lanes_[i].at.connection);
        });
    healthy(i, seen.failure);
    if (ended_) return;
  }
  std::vector<std::array<Arrived, kMaxReceiveBuffers>> arrived(pending_.size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) take_stock(lane, arrived);
  LaneNote note{.epoch = epoch_,
                .kind = static_cast<uint8_t>(NoteKind::kResume),
                .lanes = alive_lanes(lanes_),
                .next = next_slot_,
                .done = {~0ULL, ~0ULL, ~0ULL, ~0ULL}};
  for (size_t i = 0; i < pending_.size(); ++i) {
    Receive& receive = *pending_[i];
    if (receive.lanes == 0 || receive.state() != MessageRequest::State::kPending) continue;
    uint64_t slot = receive.first_slot;
    for (size_t k = 0; k < receive.buffer_count; ++k) {
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
  notes_.send(note);
  keeper_->hurry();
  state_ = State::kResuming;
  for (Receive* receive : pending_) {
    if (receive->state() != MessageRequest::State::kPending) continue;
    const auto buffers = std::span(receive->buffers).first(receive->buffer_count);
    if (std::ranges::all_of(buffers, &Buffer::filled)) {
      finish(*receive);
    } else if (std::ranges::any_of(buffers, [](const Buffer& buffer) {
                 return !buffer.filled && buffer.size > 0 && buffer.memory == nullptr;
               })) {
      return fail(MessageFailure::kMemoryGone, 0);
    } else {
      post(*receive);
    }
  }
}

void BondedReceive::forget_memory(const Memory& memory) {
  const std::lock_guard lock(mutex_);
  for (Receive* receive : pending_) {
    for (Buffer& buffer : receive->buffers) {
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
