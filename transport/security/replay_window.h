// Which packets have been accepted, by their counters. Each counter is accepted once, in any order,
// unless it is older than the window (as in RFC 4303, 3.4.3). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace pacecar {

class ReplayWindow {
 public:
  // `width`: counters, a power of two, at least 128.
  explicit ReplayWindow(uint32_t width) : words_(width / 64) {}

  // The newest accepted one; 0 before the first.
  uint64_t newest() const { return newest_; }
  // The counter has not been accepted before, and is not too old.
  bool fresh(uint64_t counter) const {
    if (counter > newest_) return true;
    // The newest counter's word replaced the one that is words_.size() words older.
    if (counter / 64 + words_.size() <= newest_ / 64) return false;
    return (words_[word(counter)] & bit(counter)) == 0;
  }
  // Only for fresh counters.
  void take(uint64_t counter) {
    if (counter > newest_) advance(counter);
    words_[word(counter)] |= bit(counter);
  }

 private:
  size_t word(uint64_t counter) const { return counter / 64 & (words_.size() - 1); }
  static uint64_t bit(uint64_t counter) { return uint64_t{1} << (counter % 64); }
  void advance(uint64_t counter) {
    uint64_t turn = newest_ / 64;
    newest_ = counter;
    if (counter / 64 - turn > words_.size()) turn = counter / 64 - words_.size();
    while (turn < counter / 64) words_[++turn & (words_.size() - 1)] = 0;
  }

  std::vector<uint64_t> words_;
  uint64_t newest_ = 0;
};

}  // namespace pacecar
