#include "transport/rma/peer.h"

#include <fmt/format.h>

#include "transport/base/return_if_error.h"

namespace pacecar::rma {
namespace {

Window window_in(const Record& record) {
  return {.address = record.offset, .length = record.length, .key = record.answer_window};
}

Record record_of(RecordKind kind, const Window& window) {
  return {
      .kind = kind, .offset = window.address, .length = window.length, .answer_window = window.key};
}

}  // namespace

bool Peer::advance() {
  if (!inbox_) return false;
  const auto came = take_records();
  if (!came) {
    left_ ? abandon() : fail(came.error());
    return true;
  }
  request_gets();
  if (auto advanced = outbox_->advance(); !advanced) {
    fail(advanced.error());
    return true;
  }
  while (!answers_.empty() && answers_.front().end <= outbox_->done()) answers_.pop_front();
  if (!flushes_.empty()) finish_flushes();
  return *came;
}

Result<bool> Peer::take_records() {
  bool came = false;
  while (!arrivals_.full()) {
    ASSIGN_OR_RETURN(const auto record, inbox_->next());
    if (!record) return came;
    came = true;
    RETURN_IF_ERROR(take(*record));
  }
  return came;
}

Result<void> Peer::take(const Record& record) {
  switch (record.kind) {
    case RecordKind::kWindow: {
      const Place place{
          .id = record.window, .window = window_in(record), .staged = record.staged != 0};
      if (!windows_.announce(rank_, place)) return invalid("too many windows");
      return {};
    }
    case RecordKind::kLanding:
      if (!outbox_->set_landing(window_in(record))) return invalid("an invalid landing");
      return {};
    case RecordKind::kNothing: return {};
    case RecordKind::kSignal: return add_signal(record);
    case RecordKind::kGet: return answer(record);
    case RecordKind::kGot: return on_got(record);
    case RecordKind::kDeliver: return deliver(record);
    case RecordKind::kDelivered:
      if (!outbox_->delivered(record.value))
        return invalid("more deliveries than there were pieces");
      return {};
    case RecordKind::kBye:
      if (gets_answered_ != gets_added_)
        return invalid("its last record before it had answered all gets");
      left_ = true;
      return {};
    case RecordKind::kHello: break;
  }
  return invalid("a record of an unknown kind");
}

// The puts before the signal are in place.
Result<void> Peer::add_signal(const Record& record) {
  const auto word = windows_.own_word(record.window, record.offset);
  if (!word || (word->copies != nullptr && !arrivals_.has_scratch())) {
    return invalid("a signal outside of our windows");
  }
  arrivals_.add(record.window, record.offset, record.value);
  return {};
}

// Copies from the landing to the GPU; the copies of one GPU are done in order.
Result<void> Peer::deliver(const Record& record) {
  uint8_t* const to = windows_.own_bytes(record.window, record.offset, record.length);
  const auto copies = to == nullptr ? nullptr : windows_.own_copies(record.window);
  uint8_t* const from =
      landing_ == nullptr ? nullptr : landing_->bytes(rank_, record.answer_offset, record.length);
  if (copies == nullptr || from == nullptr) return invalid("a delivery outside of our windows");
  if (auto copied = copies->copy(CopyWay::kToDevice, to, from, record.length); !copied) {
    return copied;
  }
  arrivals_.add({.kind = ArrivalKind::kDelivered, .rank = rank_});
  return {};
}

Result<void> Peer::answer(const Record& record) {
  // Some of our answers may have arrived, but their acknowledgements have not.
  if (answers_.size() == kMaxGets + kRecords) return invalid("more gets at once than are allowed");
  const uint8_t* const bytes = windows_.own_bytes(record.window, record.offset, record.length);
  const Place* const place = windows_.find(rank_, record.answer_window);
  const bool fits = place != nullptr && record.length <= place->window.length &&
                    record.answer_offset <= place->window.length - record.length;
  if (bytes == nullptr || !fits) return invalid("a get outside of our windows or its own");
  const Put put{.data = bytes,
                .size = record.length,
                .memory = windows_.own_memory(record.window),
                .to = *place,
                .offset = record.answer_offset};
  if (record.length > 0) outbox_->add(put, nullptr);
  outbox_->add({.kind = RecordKind::kGot, .value = record.value}, nullptr);
  answers_.push_back({outbox_->added(), record.window});
  return {};
}

Result<void> Peer::on_got(const Record& record) {
  if (gets_answered_ == gets_requested_ || record.value != gets_answered_) {
    return invalid("the answer to a get that was not requested");
  }
  ++gets_answered_;
  arrivals_.add({.kind = ArrivalKind::kGot, .rank = rank_});
  return {};
}

void Peer::on_arrival(const Arrival& arrival) {
  if (!outbox_) return;
  if (arrival.kind == ArrivalKind::kDelivered) return outbox_->report_copied();
  --gets_.front().operation->left;
  gets_.pop_front();
  ++gets_done_;
}

void Peer::share(const Place& own) {
  Record record = record_of(RecordKind::kWindow, own.window);
  record.window = own.id;
  record.staged = own.staged ? 1 : 0;
  send(record, nullptr);
}

void Peer::land_in(const Landing& landing) {
  landing_ = &landing;
  send(record_of(RecordKind::kLanding, landing.window(rank_)), nullptr);
}

void Peer::put(const Put& put, Operation& operation) { outbox_->add(put, &operation); }

void Peer::send(const Record& record, Operation* operation) {
  if (!closed()) outbox_->add(record, operation);
}

void Peer::get(Record record, Operation& operation) {
  record.kind = RecordKind::kGet;
  record.value = gets_added_++;
  ++operation.left;
  gets_.push_back({record, &operation});
  request_gets();
}

void Peer::request_gets() {
  while (gets_requested_ < gets_added_ && gets_requested_ - gets_done_ < kMaxGets) {
    const Get& get = gets_[gets_requested_++ - gets_done_];
    outbox_->add(get.record, nullptr);
  }
}

void Peer::flush(Operation& operation) {
  ++operation.left;
  flushes_.push_back({gets_added_, &operation});
  outbox_->add_mark(operation);
}

// The last part of a flush is that arrivals here are visible.
void Peer::finish_flushes() {
  while (!flushes_.empty() && flushes_.front().operation->left == 1 &&
         flushes_.front().gets <= gets_done_) {
    arrivals_.add({.kind = ArrivalKind::kFlush, .operation = flushes_.front().operation});
    flushes_.pop_front();
  }
}

// The peer has left, and its last record has arrived.
void Peer::abandon() {
  outbox_->abandon(closed_error());
  answers_.clear();
  std::erase_if(flushes_, [](const Flush& flush) { return flush.operation->error.has_value(); });
}

void Peer::withdraw(const Memory* memory) {
  if (!outbox_ || !outbox_->waits_for(memory)) return;
  fail({ErrorCode::kInvalidArgument,
        "a window was unshared before puts from it were done: wait for them first"});
}

// Closes the connections with the peer, so that the peer detects the failure, too.
void Peer::fail(const Error& cause) {
  const Error why{cause.code, fmt::format("rank {}: {}", rank_, cause.message)};
  failure_ = why;
  outbox_->fail(why);
  for (const Get& get : gets_) get.operation->fail(why);
  for (const Flush& flush : flushes_) flush.operation->fail(why);
  gets_.clear();
  flushes_.clear();
  answers_.clear();
  outbox_.reset();
  inbox_.reset();
}

Error Peer::closed_error() const {
  if (failure_) return *failure_;
  return {ErrorCode::kPeer, fmt::format("rank {} has left: look there", rank_)};
}

tl::unexpected<Error> Peer::invalid(const char* what) const {
  return pacecar::fail(ErrorCode::kPeer,
                       fmt::format("peer {} sent {}: run the same version of Pacecar on all ranks, "
                                   "and the same program",
                                   outbox_->peer(), what));
}

}  // namespace pacecar::rma
