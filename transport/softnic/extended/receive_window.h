// ReceiveWindow: which packets of a peer have arrived: the cumulative sequence number, and a bitmap
// of the packets beyond it. It classifies each packet as new, a duplicate, or outside any live
// sender's window, and provides the bitmap of the selective acknowledgement.
// Invariant: every packet below cumulative() has arrived, cumulative() itself has not, and no
// packet at or beyond cumulative() + size has. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/seq.h"

namespace pacecar {

enum class Arrival : uint8_t { kNew, kDuplicate, kOutOfWindow };

class ReceiveWindow {
 public:
  ReceiveWindow(uint32_t size, uint64_t first_psn);  // `size` packets, a multiple of 64.

  static uint64_t queue_bytes(uint32_t size) { return (size / 64 + 1) * sizeof(uint64_t); }

  // Does not change the window: a new packet is marked only when its bytes are placed.
  Arrival classify(uint64_t psn) const;
  void mark(uint64_t psn);  // `psn` must be classified as new.
  // Whether the packet with this number on the wire is new, and none is missing before it or has
  // arrived beyond it. take_next() marks such a packet.
  bool is_next(uint32_t psn24) const { return in_order() && psn24 == (cumulative_ & kPsnMask); }
  void take_next() { highest_ = ++cumulative_; }

  uint64_t cumulative() const { return cumulative_; }
  bool in_order() const { return highest_ == cumulative_; }
  // Fills the bitmap (bit i of word w: packet cumulative() + 64 w + i has arrived) and returns the
  // number of words; 0: everything is in order. What does not fit into `words` is left out.
  uint32_t selective_words(std::span<uint64_t> words) const;

 private:
  uint64_t& word_of(uint64_t psn) { return bits_[(psn / 64) % bits_.size()]; }
  uint64_t word_at(uint64_t psn) const { return bits_[(psn / 64) % bits_.size()]; }

  // A ring: bit psn % 64 of word psn / 64. Only bits in the window are set.
  std::vector<uint64_t> bits_;
  uint64_t cumulative_;
  uint64_t highest_;  // one beyond the highest packet that has arrived, at least cumulative_
  uint32_t size_;
};

}  // namespace pacecar
