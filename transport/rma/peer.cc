#include "transport/rma/peer.h"

#include <fmt/format.h>

#include <atomic>

namespace pacecar::rma {

bool Peer::advance() {
  if (!inbox_) return false;
  const auto came = take_records();
  if (!came) {
    if (!left_) fail(came.error());
    return true;
  }
  ask();
  if (auto advanced = outbox_->advance(); !advanced) {
    fail(advanced.error());
    return true;
  }
  while (!answers_.empty() && answers_.front() <= outbox_->done()) answers_.pop_front();
  if (!flushes_.empty()) finish_flushes();
  return *came;
}

Result<bool> Peer::take_records() {
  bool came = false;
  while (true) {
    const auto record = inbox_->next();
    if (!record) return tl::unexpected(record.error());
    if (!*record) return came;
    came = true;
    if (auto taken = take(**record); !taken) return tl::unexpected(taken.error());
  }
}

Result<void> Peer::take(const Record& record) {
  switch (record.kind) {
    case RecordKind::kWindow: {
      const Window window{
          .address = record.offset, .length = record.length, .key = record.answer_window};
      if (!windows_.announce(rank_, {record.window, window})) return nonsense("a window too many");
      return {};
    }
    case RecordKind::kNothing:
      return {};
    case RecordKind::kSignal:
      return add_signal(record);
    case RecordKind::kGet:
      return answer(record);
    case RecordKind::kGot:
      return on_got(record);
    case RecordKind::kBye:
      if (!gets_.empty()) return nonsense("its farewell before it had answered");
      left_ = true;
      return {};
    case RecordKind::kHello:
      break;
  }
  return nonsense("a record of no kind");
}

// The puts before it are in place, and whoever finds the sum finds them.
Result<void> Peer::add_signal(const Record& record) {
  uint64_t* const word = windows_.own_word(record.window, record.offset);
  if (word == nullptr) return nonsense("a signal outside of our windows");
  std::atomic_ref(*word).fetch_add(record.value);
  return {};
}

Result<void> Peer::answer(const Record& record) {
  // Some answers have come there already, as we do not know yet.
  if (answers_.size() == kMaxGets + kRecords) return nonsense("more gets at once than are allowed");
  const uint8_t* const bytes = windows_.own_bytes(record.window, record.offset, record.length);
  const Window* const place = windows_.find(rank_, record.answer_window);
  const bool fits = place != nullptr && record.length <= place->length &&
                    record.answer_offset <= place->length - record.length;
  if (bytes == nullptr || !fits) return nonsense("a get outside of our windows, or its own");
  const Put put{.data = bytes,
                .size = record.length,
                .memory = windows_.own_memory(record.window),
                .window = *place,
                .offset = record.answer_offset};
  if (record.length > 0) outbox_->add(put, nullptr);
  outbox_->add({.kind = RecordKind::kGot, .value = record.value}, nullptr);
  answers_.push_back(outbox_->added());
  return {};
}

Result<void> Peer::on_got(const Record& record) {
  if (gets_done_ == gets_asked_ || record.value != gets_done_)
    return nonsense("what was not asked");
  --gets_.front().operation->left;
  gets_.pop_front();
  ++gets_done_;
  return {};
}

void Peer::put(const Put& put, Operation& operation) {
  if (!outbox_ || left_) return operation.fail(gone());
  outbox_->add(put, &operation);
}

void Peer::say(const Record& record, Operation* operation) {
  if (outbox_ && !left_) return outbox_->add(record, operation);
  if (operation != nullptr) operation->fail(gone());
}

void Peer::get(Record record, Operation& operation) {
  if (!outbox_ || left_) return operation.fail(gone());
  record.kind = RecordKind::kGet;
  record.value = gets_added_++;
  ++operation.left;
  gets_.push_back({record, &operation});
  ask();
}

void Peer::ask() {
  while (gets_asked_ < gets_added_ && gets_asked_ - gets_done_ < kMaxGets) {
    const Get& get = gets_[gets_asked_++ - gets_done_];
    outbox_->add(get.record, nullptr);
  }
}

void Peer::flush(Operation& operation) {
  if (!outbox_ || left_) return operation.fail(gone());
  ++operation.left;
  flushes_.push_back({outbox_->added(), gets_added_, &operation});
  finish_flushes();
}

void Peer::finish_flushes() {
  while (!flushes_.empty() && flushes_.front().parts <= outbox_->done() &&
         flushes_.front().gets <= gets_done_) {
    --flushes_.front().operation->left;
    flushes_.pop_front();
  }
}

// Its connections close, so that it learns of it, too.
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

Error Peer::gone() const {
  if (failure_) return *failure_;
  return {ErrorCode::kPeer, fmt::format("rank {} has left: look there", rank_)};
}

tl::unexpected<Error> Peer::nonsense(const char* what) const {
  return pacecar::fail(ErrorCode::kPeer,
                       fmt::format("peer {} sent {}: run the same version of Pacecar on all ranks, "
                                   "and the same program",
                                   outbox_->peer(), what));
}

}  // namespace pacecar::rma
