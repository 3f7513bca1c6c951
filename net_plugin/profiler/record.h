// The record of one communicator: its newest events, in rings of fixed size, and sums of all.
//
// NCCL's threads write it while others read it: every word is atomic, nobody waits, nothing is
// allocated. An event stays in its ring until enough newer ones have begun; later updates of it are
// dropped. A reader skips events that are overwritten meanwhile. Several threads may begin events
// at a time; one thread updates a step and the operation that it belongs to.
//
// The cost is bounded: of operations beyond kMessageRate messages a second only start and end are
// recorded.
//
// Time is an argument. Collectives, proxy operations and kernels have a ring of their own, so that
// the many steps do not overwrite them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net_plugin/profiler/event.h"

namespace pacecar::profiler {

// A communicator's identity. Before version 4 of the table events carry it.
struct Identity {
  uint64_t communicator = 0;
  int32_t rank = -1;
  int32_t ranks = 0;  // 0: not known
  int32_t nodes = 0;
};

class Record {
 public:
  static constexpr size_t kOperations = 2048;
  static constexpr size_t kSteps = 4096;
  // Messages per second, and in one burst. One takes some 170 ns (bench/measure/micro), so all take
  // 0.1% of one core.
  static constexpr uint64_t kMessageRate = 5000;

  // Drops everything. Meanwhile only readers and late calls may use it: these are harmless.
  void reset(const Identity& identity);

  // An id; 0: it is not recorded. `parent` is one, or 0.
  uint64_t start(const Description& given, uint64_t parent, uint64_t now_ns);
  // Ends a step, kernel, request or operation; of a collective, the host's part.
  void stop(uint64_t id, uint64_t now_ns);
  // From now on the step waits for this. `bytes` that it moves; 0: not known yet.
  void wait(uint64_t id, Wait wait, uint64_t bytes, uint64_t now_ns);
  void add_bytes(uint64_t id, uint64_t bytes);  // of an operation, before version 4
  void kernel_ended(uint64_t id, uint64_t gpu_ns);
  void identify(uint64_t communicator, int32_t rank);  // unless it is known

  Identity identity() const;
  Totals totals() const;
  // The oldest first, as they began.
  std::vector<Event> operations() const { return read(operations_); }
  std::vector<Event> steps() const { return read(steps_); }

 private:
  using Word = std::atomic<uint64_t>;
  using DescriptionWords = std::array<uint64_t, sizeof(Description) / sizeof(uint64_t)>;
  struct alignas(64) Slot {
    Word id{0};  // 0: never written, kWriting: being written
    std::array<Word, std::tuple_size_v<DescriptionWords>> what;
    Word parent;
    Word start;
    Word stop;
    Word moment;
    Word first;
    Word bytes;
    Word waiting;  // the time since when; in the top byte the Wait
    std::array<Word, kWaits> waits;
  };
  struct Ring {
    explicit Ring(size_t size) : slots(size) {}

    std::vector<Slot> slots;
    Word begun{0};
  };

  static void store(const Description& what, Slot& slot);
  static Description load(const Slot& slot);
  static void enter(Slot& slot, Wait wait, uint64_t now_ns);
  static std::vector<Event> read(const Ring& ring);
  static void clear(Ring& ring);

  Slot* find(uint64_t id);  // nullptr: overwritten
  bool may_detail(uint64_t messages, uint64_t now_ns);
  void stop_step(Slot& step, uint64_t now_ns);
  void stop_operation(Slot& operation, uint64_t now_ns);

  Ring operations_{kOperations};
  Ring steps_{kSteps};
  Word communicator_{0};
  std::atomic<int32_t> rank_{-1};
  std::atomic<int32_t> ranks_{0};
  std::atomic<int32_t> nodes_{0};
  Word collectives_{0};
  Word point_to_points_{0};
  Word bytes_sent_{0};
  Word bytes_received_{0};
  Word busy_{0};
  std::array<Word, kWaits> waits_{};
  Word allowed_until_{0};  // until when the recorded messages use up kMessageRate
};

}  // namespace pacecar::profiler
