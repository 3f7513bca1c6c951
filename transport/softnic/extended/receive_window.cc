#include "transport/softnic/extended/receive_window.h"

#include <algorithm>
#include <bit>

#include "transport/base/check.h"

namespace pacecar {

// One word more than the window: one that starts within a word never wraps onto itself.
ReceiveWindow::ReceiveWindow(uint32_t size, uint64_t first_psn)
    : bits_(size / 64 + 1), cumulative_(first_psn), highest_(first_psn), size_(size) {
  PACECAR_CHECK(size > 0 && size % 64 == 0);
}

Arrival ReceiveWindow::classify(uint64_t psn) const {
  if (psn >= highest_) {
    return psn < cumulative_ + size_ ? Arrival::kNew : Arrival::kOutOfWindow;
  }
  if (psn < cumulative_) {
    // The sender may retransmit a window, and probes the packet before it: older ones are invalid.
    return cumulative_ - psn <= size_ + 1 ? Arrival::kDuplicate : Arrival::kOutOfWindow;
  }
  return (word_at(psn) >> (psn % 64) & 1) != 0 ? Arrival::kDuplicate : Arrival::kNew;
}

void ReceiveWindow::mark(uint64_t psn) {
  if (psn == cumulative_ && highest_ == cumulative_) {  // everything in order: no bitmap needed
    highest_ = ++cumulative_;
    return;
  }
  word_of(psn) |= uint64_t{1} << (psn % 64);
  highest_ = std::max(highest_, psn + 1);
  if (psn != cumulative_) return;
  while (cumulative_ < highest_) {  // at most one turn per word of the window
    uint64_t& word = word_of(cumulative_);
    const auto run = static_cast<uint64_t>(std::countr_one(word >> (cumulative_ % 64)));
    if (run == 0) break;
    const uint64_t ones = run == 64 ? ~uint64_t{0} : (uint64_t{1} << run) - 1;
    word &= ~(ones << (cumulative_ % 64));
    cumulative_ += run;
    if (cumulative_ % 64 != 0) break;
  }
}

uint32_t ReceiveWindow::selective_words(std::span<uint64_t> words) const {
  if (in_order()) return 0;
  const uint64_t span = highest_ - cumulative_;
  const auto count = static_cast<uint32_t>(std::min<uint64_t>((span + 63) / 64, words.size()));
  const uint32_t shift = cumulative_ % 64;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = cumulative_ + uint64_t{i} * 64;
    const uint64_t low = word_at(at) >> shift;
    const uint64_t high = shift == 0 ? 0 : word_at(at + 64) << (64 - shift);
    words[i] = low | high;
  }
  return count;
}

}  // namespace pacecar
