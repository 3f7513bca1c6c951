// Chooser: decides wherever more than one thing may happen in a world. The same answers make the
// same world again, so a depth-first search over the sequences of answers visits all worlds without
// copying any.
//
// The answer 0 to fault() is the course without a fault. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/prng.h"

namespace pacecar::model {

class Chooser {
 public:
  virtual ~Chooser() = default;
  // A property of the world: 0 .. options-1.
  virtual uint32_t choose(uint32_t options) = 0;
  // The fate of a word: 0 .. options-1.
  virtual uint32_t fault(uint32_t options) = 0;
  // Starts again: the same answers follow.
  virtual void rewind() = 0;
};

// All sequences of answers with at most `faults` faults in each.
class EveryChoice final : public Chooser {
 public:
  explicit EveryChoice(uint32_t faults) : faults_(faults), left_(faults) {}

  uint32_t choose(uint32_t options) override {
    if (at_ == path_.size()) path_.push_back({0, options});
    PACECAR_CHECK(path_[at_].options == options);  // a world depends on the answers alone
    return path_[at_++].chosen;
  }
  uint32_t fault(uint32_t options) override {
    if (left_ == 0) return 0;
    const uint32_t chosen = choose(options);
    if (chosen > 0) --left_;
    return chosen;
  }
  void rewind() override {
    at_ = 0;
    left_ = faults_;
  }
  // Goes on to the next sequence; false when there is none.
  bool next() {
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().chosen;
    rewind();
    return true;
  }

 private:
  struct Point {
    uint32_t chosen = 0;
    uint32_t options = 0;
  };

  const uint32_t faults_;
  uint32_t left_;
  std::vector<Point> path_;
  size_t at_ = 0;
};

// One sequence from a seed; each word meets a fault with `probability`.
class SeededChoice final : public Chooser {
 public:
  SeededChoice(uint64_t seed, double probability)
      : seed_(seed), probability_(probability), prng_(seed) {}

  uint32_t choose(uint32_t options) override { return static_cast<uint32_t>(prng_.below(options)); }
  uint32_t fault(uint32_t options) override {
    if (options < 2 || !prng_.chance(probability_)) return 0;
    return 1 + choose(options - 1);
  }
  void rewind() override { prng_ = Prng(seed_); }

 private:
  const uint64_t seed_;
  const double probability_;
  Prng prng_;
};

}  // namespace pacecar::model
