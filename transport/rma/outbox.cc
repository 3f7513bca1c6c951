#include "transport/rma/outbox.h"

#include <utility>

namespace pacecar::rma {

void Outbox::add(const Put& put, Operation* operation) {
  // A row of puts that is too long is ended by a record that says nothing.
  if (++puts_in_a_row_ > kMaxPutsInARow) {
    add(Record{}, nullptr);
    puts_in_a_row_ = 1;
  }
  add(Part{.put = put, .operation = operation});
}

void Outbox::add(const Record& record, Operation* operation) {
  puts_in_a_row_ = 0;
  add(Part{.record = record, .is_record = true, .operation = operation});
}

void Outbox::add(Part part) {
  if (part.operation != nullptr) ++part.operation->left;
  parts_.push_back(std::move(part));
  ++added_;
}

Result<void> Outbox::advance() {
  if (parts_.empty()) return {};
  while (started_ > 0 && settled(*parts_.front().request)) {
    if (auto finished = finish(); !finished) return finished;
  }
  while (started_ < parts_.size()) {
    auto started = start(parts_[started_]);
    if (!started) return tl::unexpected(started.error());
    if (!*started) break;
    // A record is copied: whoever waits for it need not wait for the peer.
    if (parts_[started_].is_record) tell_done(parts_[started_]);
    ++started_;
  }
  return {};
}

Result<void> Outbox::finish() {
  Part& part = parts_.front();
  auto result = connection_->test(part.request);
  if (!result) return tl::unexpected(result.error());
  if (part.is_record) ++records_done_;
  tell_done(part);
  parts_.pop_front();
  --started_;
  return {};
}

// Once.
void Outbox::tell_done(Part& part) {
  if (part.operation != nullptr) --std::exchange(part.operation, nullptr)->left;
}

Result<bool> Outbox::start(Part& part) {
  auto started = part.is_record ? send(part.record)
                                : connection_->iput(part.put.data, part.put.size, part.put.memory,
                                                    part.put.window, part.put.offset);
  if (!started) return tl::unexpected(started.error());
  part.request = *started;
  return *started != nullptr;
}

Result<Request*> Outbox::send(const Record& record) {
  if (records_sent_ - records_done_ == kRecords) return nullptr;
  Record& place = places_[records_sent_ % kRecords];
  place = record;
  auto started = connection_->isend(&place, sizeof place, 0, memory_);
  if (started && *started != nullptr) ++records_sent_;
  return started;
}

void Outbox::fail(const Error& why) {
  for (const Part& part : parts_) {
    if (part.operation != nullptr) part.operation->fail(why);
  }
  parts_.clear();
  started_ = 0;
}

}  // namespace pacecar::rma
