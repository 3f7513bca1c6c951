// A job of collectives, with every element checked: each operation of NCCL, in a random order, of
// random sizes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>

#include "tests/plugin/operations.h"
#include "tests/plugin/plugin_test.h"

namespace pacecar::test {

// All ranks draw the same operations. Every magnitude of the size is equally likely, zero too.
class Draw {
 public:
  static constexpr size_t kMostElements = 60'000;

  Draw(unsigned seed, int ranks)
      : random_(seed * 8 + static_cast<unsigned>(ranks)), ranks_(ranks) {}

  unsigned below(size_t bound) { return static_cast<unsigned>(random_() % bound); }
  Operation operation(uint32_t number) {
    const size_t magnitude = size_t{1} << below(17);
    return {number, std::min<size_t>(below(magnitude), kMostElements),
            static_cast<int>(below(static_cast<size_t>(ranks_)))};
  }
  std::array<OperationKind, kOperations.size()> order() {
    auto kinds = kOperations;
    std::shuffle(kinds.begin(), kinds.end(), random_);
    return kinds;
  }

 private:
  std::mt19937 random_;
  int ranks_;
};

// One rank's part of all operations, `rounds` times; `before` is called with the number of each.
inline void run_collectives(
    Rank& rank, Draw draw, size_t nics, int rounds,
    const std::function<void(uint32_t number)>& before = [](uint32_t) {}) {
  const auto host = start_host(nics);
  Mesh mesh(*host, rank, static_cast<size_t>(rank.size()) * Draw::kMostElements);
  uint32_t number = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const OperationKind& kind : draw.order()) {
      before(number);
      const Operation operation = draw.operation(number++);
      const size_t wrong = kind.run(mesh, operation);
      EXPECT_EQ(wrong, 0U) << kind.name << " of " << operation.count << " elements, root "
                           << operation.root << ", rank " << rank.rank();
    }
  }
  rank.barrier();
}

}  // namespace pacecar::test
