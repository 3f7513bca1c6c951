#include "transport/softnic/write_tracker.h"

#include "transport/base/seq.h"

namespace pacecar {

WriteTracker::WriteTracker(uint32_t capacity) : writes_(capacity) {}

const WriteTracker::Write* WriteTracker::find(uint32_t msn24, uint64_t* msn) const {
  *msn = expand_psn(first_, msn24);
  if (*msn < first_ || *msn >= first_ + writes_.size()) return nullptr;
  return &writes_[*msn % writes_.size()];
}

bool WriteTracker::acceptable(uint32_t msn24, Bytes payload, Bytes total) const {
  uint64_t msn = 0;
  const Write* write = find(msn24, &msn);
  if (write == nullptr || write->complete) return false;
  if (write->started && write->total != total) return false;
  return write->received + payload <= total;
}

WriteTracker::Verdict WriteTracker::add(uint32_t msn24, Bytes payload, Bytes total) {
  if (!acceptable(msn24, payload, total)) return Verdict::kRefused;
  const uint64_t msn = expand_psn(first_, msn24);
  Write& write = writes_[msn % writes_.size()];
  write.started = true;
  write.total = static_cast<uint32_t>(total);
  write.received += static_cast<uint32_t>(payload);
  if (write.received != write.total) return Verdict::kIncomplete;
  complete(write);
  return Verdict::kComplete;
}

void WriteTracker::cancel(uint32_t msn24) {
  uint64_t msn = 0;
  if (find(msn24, &msn) != nullptr) complete(writes_[msn % writes_.size()]);
}

void WriteTracker::complete(Write& write) {
  write.complete = true;
  while (writes_[first_ % writes_.size()].complete) {
    writes_[first_ % writes_.size()] = Write{};
    ++first_;
  }
}

}  // namespace pacecar
