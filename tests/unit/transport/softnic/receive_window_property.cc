// ReceiveWindow against a set of all packets that have arrived.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "transport/base/prng.h"
#include "transport/softnic/extended/receive_window.h"

namespace pacecar::receive_window_property {
namespace {

struct Model {
  uint32_t size;
  uint64_t first;
  std::set<uint64_t> arrived = {};

  uint64_t cumulative() const {
    uint64_t psn = first;
    while (arrived.contains(psn)) ++psn;
    return psn;
  }
  bool beyond(uint64_t psn) const { return psn >= cumulative() + size; }
  Arrival classify(uint64_t psn) const {
    const uint64_t next = cumulative();
    if (psn + size + 1 < next || psn >= next + size) return Arrival::kOutOfWindow;
    return psn < next || arrived.contains(psn) ? Arrival::kDuplicate : Arrival::kNew;
  }
};

void expect_same(const ReceiveWindow& window, const Model& model) {
  const uint64_t next = model.cumulative();
  RC_ASSERT(window.cumulative() == next);
  const bool in_order = model.arrived.empty() || *model.arrived.rbegin() < next;
  RC_ASSERT(window.in_order() == in_order);

  std::vector<uint64_t> words(model.size / 64, ~uint64_t{0});
  const uint32_t count = window.selective_words(words);
  const uint64_t highest = in_order ? next : *model.arrived.rbegin() + 1;
  RC_ASSERT(count == (highest - next + 63) / 64);
  for (uint32_t i = 0; i < count * 64; ++i) {
    const bool set = (words[i / 64] >> (i % 64) & 1) != 0;
    RC_ASSERT(set == model.arrived.contains(next + i));
  }
  // A shorter bitmap is a prefix of the whole one.
  if (count > 1) {
    std::vector<uint64_t> shorter(count - 1);
    RC_ASSERT(window.selective_words(shorter) == count - 1);
    RC_ASSERT(std::equal(shorter.begin(), shorter.end(), words.begin()));
  }
}

RC_GTEST_PROP(ReceiveWindow, BehavesAsASet, (uint64_t seed)) {
  Prng prng(seed);
  Model model{.size = static_cast<uint32_t>(64 * (1 + prng.below(4))),
              .first = prng.chance(0.5) ? prng.below(200) : prng.next_u64() >> 2};
  ReceiveWindow window(model.size, model.first);
  // How far ahead packets may be: nearly in order, or anywhere in the window and beyond.
  const uint64_t spread = prng.chance(0.3) ? 3 : 2 * model.size;
  for (int i = 0; i < 600; ++i) {
    const uint64_t next = model.cumulative();
    const uint64_t back = prng.chance(0.1) ? std::min(next, prng.below(2 * model.size)) : 0;
    const uint64_t psn = prng.chance(0.3) ? next : next - back + prng.below(spread);
    // The window takes packets before the first one for duplicates. No peer sends them.
    if (psn < model.first) continue;
    RC_ASSERT(window.classify(psn) == model.classify(psn));
    if (model.classify(psn) == Arrival::kNew) {
      window.mark(psn);
      model.arrived.insert(psn);
    }
    if (i % 16 == 0) expect_same(window, model);
  }
  expect_same(window, model);
}

// A whole window in a random order, many times over.
RC_GTEST_PROP(ReceiveWindow, WindowReceivedInAnyOrderEndsInOrder, (uint64_t seed)) {
  constexpr uint32_t kSize = 128;
  Prng prng(seed);
  const uint64_t first = prng.below(1000);
  ReceiveWindow window(kSize, first);
  for (uint64_t round = 0; round < 5; ++round) {
    std::vector<uint64_t> psns(kSize);
    for (uint64_t i = 0; i < kSize; ++i) psns[i] = first + round * kSize + i;
    for (uint64_t i = kSize; i > 1; --i) std::swap(psns[i - 1], psns[prng.below(i)]);
    for (const uint64_t psn : psns) {
      RC_ASSERT(window.classify(psn) == Arrival::kNew);
      window.mark(psn);
      RC_ASSERT(window.classify(psn) == Arrival::kDuplicate);
    }
    RC_ASSERT(window.in_order());
    RC_ASSERT(window.cumulative() == first + (round + 1) * kSize);
  }
}

}  // namespace
}  // namespace pacecar::receive_window_property
