#include "transport/softnic/extended/write_tracker.h"

#include <bit>

#include "transport/base/seq.h"

namespace pacecar {

WriteTracker::WriteTracker(uint32_t capacity)
    : capacity_(capacity), writes_(std::bit_ceil(capacity)) {}

Bytes WriteTracker::bytes(uint32_t capacity) { return std::bit_ceil(capacity) * sizeof(Write); }

WriteTracker::Write* WriteTracker::at(uint32_t msn24) {
  const uint64_t ahead = (msn24 - first_) & kPsnMask;
  return ahead < capacity_ ? &writes_[(first_ + ahead) & (writes_.size() - 1)] : nullptr;
}

WriteTracker::Write* WriteTracker::find(uint32_t msn24, Bytes payload, Bytes total) {
  Write* write = at(msn24);
  if (write == nullptr || write->complete) return nullptr;
  if (write->started && write->total != total) return nullptr;
  return write->received + payload <= total ? write : nullptr;
}

bool WriteTracker::count(Write& write, Bytes payload, Bytes total) {
  write.started = true;
  write.total = static_cast<uint32_t>(total);
  write.received += static_cast<uint32_t>(payload);
  if (write.received != write.total) return false;
  complete(write);
  return true;
}

void WriteTracker::cancel(uint32_t msn24) {
  if (Write* write = at(msn24); write != nullptr) complete(*write);
}

void WriteTracker::complete(Write& write) {
  write.complete = true;
  const uint64_t mask = writes_.size() - 1;
  while (writes_[first_ & mask].complete) writes_[first_++ & mask] = Write{};
}

}  // namespace pacecar
