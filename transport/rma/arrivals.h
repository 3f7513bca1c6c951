// Arrivals from the ranks: additions to words, ends of gets, deliveries, flushes. They count only
// when all earlier arrivals are visible. Without a window on a GPU they count at once. Otherwise
// they count in rounds, one at a time; later arrivals wait for the next round:
//   read:   in parallel, flush the NIC's writes to each GPU, wait for copies to it, and read the
//           words in its memory
//   count:  add to the host's words, complete all else, and start writing the GPUs' words
//   write:  wait for these
// Nothing else writes a GPU's words during a round: NCCL forbids resetting a signal while one may
// arrive. They are read in each round, since NCCL resets them between signals. Signals to one word
// in a round are one copy.
// Bounds: kMost; check full() before adding. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/rma/windows.h"

namespace pacecar::rma {

enum class ArrivalKind : uint8_t { kGot, kDelivered, kFlush };

struct Arrival {
  ArrivalKind kind = ArrivalKind::kGot;
  size_t rank = 0;                 // its origin; unused for a flush
  Operation* operation = nullptr;  // of kFlush
};

class Arrivals {
 public:
  static constexpr size_t kMost = 4096;

  Arrivals(std::shared_ptr<Context> context, size_t nic, Windows& windows)
      : context_(std::move(context)), nic_(nic), windows_(windows) {}
  ~Arrivals();

  // Called before the first window on a GPU: kMost words, through which words on GPUs are copied.
  void use(std::unique_ptr<PinnedMemory> scratch) { scratch_ = std::move(scratch); }
  bool has_scratch() const { return scratch_ != nullptr; }

  bool full() const { return sums_.size() + arrivals_.size() >= kMost; }
  bool idle() const { return phase_ == Phase::kNone && sums_.empty() && arrivals_.empty(); }

  // Adds to a word of ours, which exists; dropped if its window is deregistered before it counts.
  void add(WindowId window, uint64_t offset, uint64_t value);
  void add(const Arrival& arrival) { arrivals_.push_back(arrival); }
  // Continues the round. Returns the arrivals that now count; valid until the next call. After an
  // error (of a flush or a copy) nothing can count, and fail() must be called.
  Result<std::span<const Arrival>> advance();
  void fail(const Error& why);  // Pending flushes fail; drops everything else.

 private:
  enum class Phase : uint8_t { kNone, kRead, kWrite };
  using At = std::pair<WindowId, uint64_t>;  // a window, and the offset in it
  struct Sum {
    uint64_t value = 0;
    bool read = false;  // a GPU's word, which is read into its place of the scratch
  };
  using Sums = std::map<At, Sum>;  // in the order of their places in the scratch
  // A GPU of the round.
  struct Gpu {
    std::shared_ptr<const CopyEngine> engine;
    std::optional<FlushId> flush;
    std::array<CopyEvent, 2> copies;  // by CopyWay
    std::array<bool, 2> copying{};    // by CopyWay: the event is pending
  };

  Result<void> begin();
  Result<bool> count();  // True: words of GPUs are being copied.
  Result<bool> through();
  Gpu& gpu_of(const std::shared_ptr<const CopyEngine>& engine);
  Result<void> copy(CopyWay way, const Word& word, size_t place);
  Result<void> follow(CopyWay way);
  uint64_t* scratch(size_t place) const;

  const std::shared_ptr<Context> context_;
  const size_t nic_;
  Windows& windows_;
  std::unique_ptr<PinnedMemory> scratch_;
  Sums sums_;                      // of the next round
  std::vector<Arrival> arrivals_;  // of the next round
  Phase phase_ = Phase::kNone;
  Sums round_sums_;
  std::vector<Arrival> round_arrivals_;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // of all rounds so far
};

}  // namespace pacecar::rma
