#include "transport/api/bond/bonded_end.h"

#include <fmt/format.h>

namespace pacecar {

BondedEnd::BondedEnd(std::vector<BondLane> lanes, std::shared_ptr<BondKeeper> keeper)
    : lanes_(std::move(lanes)),
      keeper_(std::move(keeper)),
      stalls_(lanes_.size()),
      watch_(keep_alive_of(lanes_.front().at.nic.timeout)) {
  for (const BondLane& lane : lanes_) {
    const Attachment& at = lane.at;
    inboxes_.push_back(at.nic.engine->exclusively([&at](Messenger& messenger) {
      return &messenger.lanes(at.direction).peer_note(at.connection);
    }));
  }
}

void BondedEnd::progress() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Attachment& at = lanes_[i].at;
    if (lanes_[i].alive) at.nic.engine->progress();
    stalls_[i].check(at.nic);
  }
}

MessageRequest* BondedEnd::take_request() {
  if (free_.empty()) return nullptr;
  MessageRequest* const request = free_.back();
  free_.pop_back();
  request->failure = MessageFailure::kNone;
  request->set(MessageRequest::State::kPending);
  return pending_.emplace_back(request);
}

Result<TestResult> BondedEnd::outcome(MessageRequest& request) {
  TestResult result;
  const MessageRequest::State state = request.state();
  if (state == MessageRequest::State::kPending) return result;
  if (state == MessageRequest::State::kFree) return tested_again();
  fill_result(request, result);
  const MessageFailure failure = request.failure;
  std::erase(pending_, &request);
  request.set(MessageRequest::State::kFree);
  free_.push_back(&request);
  if (state == MessageRequest::State::kDone) return result;
  return tl::unexpected(ended_ ? *ended_ : error_of(failure, 0, ""));
}

bool BondedEnd::drive(Instant now) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  collect(now);
  if (const auto note = receive_note(); note && !ended_) {
    watch_.on_peer_alive(now);
    on_note(*note, now);
  }
  if (!ended_) watch(now);
  if (!ended_ && state_ == State::kPausing) finish_pause(now);
  if (ended_) return false;
  return !deliver_note() || state_ != State::kFlowing;
}

std::optional<LaneNote> BondedEnd::receive_note() {
  std::optional<LaneNote> newest;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::optional<LaneNote> note = lanes_[i].alive ? last_note(i) : std::nullopt;
    if (!note || note->number <= last_received_) continue;
    last_received_ = note->number;
    newest = note;
  }
  return newest;
}

bool BondedEnd::deliver_note() {
  bool all = true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Attachment& at = lanes_[i].at;
    if (!lanes_[i].alive || delivered_[i] == note_.number) continue;
    if (at.call(&Lanes::write_note, note_)) {
      delivered_[i] = note_.number;
      at.nic.engine->submitted();
    } else {
      all = false;
    }
  }
  return all;
}

// A silent lane is lost only if another is alive; lanes without data may break or be closed, too.
void BondedEnd::watch(Instant now) {
  if (pending_.empty() && state_ == State::kFlowing) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].alive) continue;
    const LaneSight seen = sight(i);
    const bool closed = seen.closed && state_ != State::kFlowing;
    if (healthy(i, closed ? MessageFailure::kPeerClosed : seen.failure) &&
        watch_.update(i, {.waits = seen.writes > 0, .life = seen.life}, now)) {
      give_up(i, "nothing is acknowledged on it");
    }
    if (ended_) return;
  }
  // The same note once more: its acknowledgement shows that the peer is alive.
  if (watch_.should_probe(now)) ++note_.number;
}

bool BondedEnd::healthy(size_t lane, MessageFailure failure) {
  if (failure == MessageFailure::kNone) return true;
  failure == MessageFailure::kPeerSilent ? give_up(lane, "") : on_failure(lane, failure);
  return false;
}

void BondedEnd::give_up(size_t lane, const std::string& cause) {
  const Attachment& at = lanes_[lane].at;
  lanes_[lane].alive = false;
  // The lane receives nothing more from here on, so the record of its received messages is final.
  at.nic.engine->exclusively(
      [&at](Messenger& messenger) { messenger.break_flow(at.direction, at.connection); });
  const std::string fault = at.call(&Lanes::fault);
  std::string others;
  for (const BondLane& other : lanes_) {
    if (other.alive) others += (others.empty() ? "" : ", ") + other.at.nic.name;
  }
  if (others.empty()) return end(error_of(MessageFailure::kPeerSilent, lane, fault));
  std::string_view why = cause.empty() ? fault : cause;
  if (why.empty()) why = "the peer does not answer on it";
  at.nic.log(LogLevel::kWarn, fmt::format("{} {}: {} is lost ({}); its messages go over {}",
                                          at.verb(), at.peer, at.nic.name, why, others));
  on_loss();
}

void BondedEnd::end(Error error) {
  ended_ = std::move(error);
  for (MessageRequest* request : pending_) {
    if (request->state() == MessageRequest::State::kPending) {
      request->set(MessageRequest::State::kFailed);
    }
  }
}

void BondedEnd::send_note(NoteKind kind, LaneMask lanes) {
  send_note({.epoch = epoch_, .kind = static_cast<uint8_t>(kind), .lanes = lanes});
}

void BondedEnd::send_note(LaneNote note) {
  note.number = note_.number + 1;
  note_ = note;
  keeper_->wake();
}

Error BondedEnd::error_of(MessageFailure failure, size_t lane, const std::string& fault) const {
  const Attachment& at = lanes_[lane].at;
  return describe(failure, at.peer, at.nic.timeout, fault, at.own_trouble());
}

}  // namespace pacecar
