#include "transport/rma/outbox.h"

#include <algorithm>
#include <utility>

#include "transport/api/memory.h"
#include "transport/api/plugin_calls.h"
#include "transport/base/return_if_error.h"

namespace pacecar::rma {
namespace {

void fail_operation(Operation* operation, const Error& why) {
  if (operation != nullptr) operation->fail(why);
}

void report_done(Operation* operation) {
  if (operation != nullptr) --operation->left;
}

}  // namespace

void Outbox::add(const Put& put, Operation* operation) {
  // The last piece counts as two parts: the peer has it, and the peer has copied it.
  if (operation != nullptr && put.to.staged) ++operation->left;
  add(Part{.kind = Kind::kPut, .put = put, .operation = operation});
}

void Outbox::add(const Record& record, Operation* operation) {
  add(Part{.kind = Kind::kRecord, .record = record, .operation = operation});
}

void Outbox::add_mark(Operation& operation) {
  add(Part{.kind = Kind::kMark, .operation = &operation});
}

void Outbox::add(Part part) {
  if (part.operation != nullptr) ++part.operation->left;
  waiting_.push_back(std::move(part));
  ++added_;
}

void Outbox::add_first(const Record& record) {
  waiting_.push_front(Part{.kind = Kind::kRecord, .record = record, .counts = false});
}

void Outbox::report_copied() {
  const bool reports = !waiting_.empty() && waiting_.front().record.kind == RecordKind::kDelivered;
  if (!reports) add_first({.kind = RecordKind::kDelivered});
  ++waiting_.front().record.value;
}

Result<void> Outbox::advance() {
  if (!started_.empty()) pacecar::advance(*connection_);
  RETURN_IF_ERROR(finish());
  while (!waiting_.empty()) {
    ASSIGN_OR_RETURN(const auto started, start());
    if (!started) break;
  }
  return {};
}

Result<void> Outbox::finish() {
  while (!started_.empty()) {
    const Started& front = started_.front();
    if (front.request != nullptr) {
      if (!settled(*front.request)) return {};
      ASSIGN_OR_RETURN(const auto result, connection_->test(front.request));
      if (!result.done) return {};
    }
    if (front.is_record) ++records_done_;
    if (front.last) ++done_;
    report_done(front.operation);
    started_.pop_front();
  }
  return {};
}

Result<bool> Outbox::start() {
  Part& part = waiting_.front();
  if (part.kind == Kind::kPut) return start_put(part);
  if (part.kind == Kind::kRecord) {
    auto sent = send(part.record, {.is_record = true, .last = part.counts});
    if (!sent || !*sent) return sent;
    // The record is copied when posted, so its operation need not wait for the peer.
    report_done(part.operation);
  } else {
    started_.push_back({.operation = part.operation});
    if (!pieces_.empty()) {
      ++part.operation->left;
      pieces_.push_back({std::nullopt, part.operation});
    }
  }
  waiting_.pop_front();
  return true;
}

Result<bool> Outbox::start_put(Part& part) {
  Put& put = part.put;
  const bool copied = put.to.staged || (put.memory != nullptr && put.memory->staged() != nullptr);
  const size_t size = copied ? std::min(put.size, Landing::kPiece) : put.size;
  const bool last = size == put.size;
  Operation* const operation = last ? part.operation : nullptr;
  const bool staged = put.to.staged;
  Record deliver;
  auto started =
      staged ? start_piece(put, size, operation, deliver)
             : write(put, size, put.to.window, put.offset, {.last = last, .operation = operation});
  if (!started || !*started) return started;
  put.data += size;
  put.offset += size;
  put.size -= size;
  if (last) waiting_.pop_front();
  if (staged) add_first(deliver);
  return true;
}

Result<bool> Outbox::start_piece(const Put& put, size_t size, Operation* operation,
                                 Record& deliver) {
  if (landing_.length == 0) {
    return pacecar::fail(ErrorCode::kPeer,
                         "a window on a GPU was shared without a landing for its puts: run the "
                         "same version of Pacecar on all ranks");
  }
  if (!next_space_) next_space_ = space_.take(size);
  if (!next_space_) return false;
  const size_t space = *next_space_;
  auto written =
      write(put, size, landing_, space, {.last = size == put.size, .operation = operation});
  if (!written || !*written) return written;
  next_space_.reset();
  pieces_.push_back({space, operation});
  deliver = {.kind = RecordKind::kDeliver,
             .window = put.to.id,
             .offset = put.offset,
             .length = size,
             .answer_offset = space};
  return true;
}

Result<bool> Outbox::write(const Put& put, size_t size, const Window& window, uint64_t offset,
                           Started started) {
  // An empty record ends a row of kMaxPutsInARow puts.
  if (puts_in_a_row_ == kMaxPutsInARow) {
    auto sent = send(Record{}, {.is_record = true, .last = false});
    if (!sent || !*sent) return sent;
  }
  ASSIGN_OR_RETURN(const auto request,
                   connection_->iput(put.data, size, put.memory, window, offset));
  if (request == nullptr) return false;
  ++puts_in_a_row_;
  started.request = request;
  started_.push_back(started);
  return true;
}

Result<bool> Outbox::send(const Record& record, Started started) {
  if (records_sent_ - records_done_ == kRecords) return false;
  Record& place = places_[records_sent_ % kRecords];
  place = record;
  ASSIGN_OR_RETURN(const auto request, connection_->isend(&place, sizeof place, 0, memory_));
  if (request == nullptr) return false;
  ++records_sent_;
  puts_in_a_row_ = 0;
  started.request = request;
  started_.push_back(started);
  return true;
}

bool Outbox::set_landing(const Window& window) {
  if (window.length != Landing::kBytes) return false;
  landing_ = window;
  return true;
}

bool Outbox::delivered(uint64_t pieces) {
  for (; pieces > 0; --pieces) {
    if (pieces_.empty()) return false;
    space_.give_back(*pieces_.front().space);
    do {  // the piece, and the marks after it
      report_done(pieces_.front().operation);
      pieces_.pop_front();
    } while (!pieces_.empty() && !pieces_.front().space);
  }
  return true;
}

bool Outbox::waits_for(const Memory* memory) const {
  return std::ranges::any_of(waiting_, [&](const Part& part) {
    return part.kind == Kind::kPut && part.put.memory == memory;
  });
}

void Outbox::fail(const Error& why) {
  for (Started& started : started_) fail_operation(started.operation, why);
  started_.clear();
  abandon(why);
}

void Outbox::abandon(const Error& why) {
  for (Part& part : waiting_) fail_operation(part.operation, why);
  for (Piece& piece : pieces_) fail_operation(piece.operation, why);
  waiting_.clear();
  pieces_.clear();
}

}  // namespace pacecar::rma
