// Atomics of standard RC against a model: with packets lost, repeated or reordered, each takes
// effect exactly once, in the connection's order, and returns the previous value.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/standard_pair.h"

namespace pacecar::atomics_property {
namespace {

using test::StandardPair;
using test::TestMemory;

// Virtual time; far more than a run takes.
constexpr Duration kPatience = Duration::from_s(300);

struct Step {
  bool swap = false;
  uint64_t operand = 0;
  uint64_t compare = 0;
};

rc::Gen<Step> step() {
  return rc::gen::apply(
      [](bool swap, uint8_t operand, uint8_t compare) {
        return Step{swap, operand % 4U, compare % 4U};  // few values, so that some are equal
      },
      rc::gen::arbitrary<bool>(), rc::gen::arbitrary<uint8_t>(), rc::gen::arbitrary<uint8_t>());
}

RC_GTEST_PROP(Atomics, EachAtomicTakesEffectOnceAndInOrder, ()) {
  const auto steps = *rc::gen::container<std::vector<Step>>(step());
  const double loss = *rc::gen::element(0.0, 0.05, 0.2);
  const double repetition = *rc::gen::element(0.0, 0.2);
  Prng prng(*rc::gen::arbitrary<uint64_t>());
  StandardPair pair;
  const auto ends = pair.join();
  TestMemory& target = pair.memory(1, 8, Access::kRemoteAtomic | Access::kLocalWrite);
  std::memset(target.bytes.data(), 0, 8);
  std::vector<TestMemory*> results;
  pair.lose = [&](size_t from, test::Datagram& datagram) {
    if (prng.chance(repetition)) pair.deliver(1 - from, datagram);
    return prng.chance(loss);
  };
  size_t completed = 0;
  uint64_t model = 0;
  std::vector<uint64_t> expected;
  for (const Step& one : steps) {
    TestMemory& result = pair.memory(0, 8, Access::kLocalWrite);
    results.push_back(&result);
    const WorkRequest request{.local = result.bytes.data(),
                              .remote = target.address(),
                              .length = 8,
                              .local_key = result.region.key,
                              .remote_key = target.region.key,
                              .opcode = one.swap ? Opcode::kCompareSwap : Opcode::kFetchAdd,
                              .operand = one.operand,
                              .compare = one.compare};
    if (results.size() == 60) break;  // the number of regions is limited
    while (pair.post(0, ends[0], request) == 0) {
      RC_ASSERT(pair.run_until_completed(0, ++completed, kPatience));
    }
    expected.push_back(model);
    model = one.swap ? (model == one.compare ? one.operand : model) : model + one.operand;
  }
  RC_ASSERT(pair.run_until_completed(0, expected.size(), kPatience));
  for (size_t i = 0; i < expected.size(); ++i) {
    RC_ASSERT(pair.completions[0][i].status == CompletionStatus::kOk);
    uint64_t original = 0;
    std::memcpy(&original, results[i]->bytes.data(), sizeof original);
    RC_ASSERT(original == expected[i]);
  }
  uint64_t word = 0;
  std::memcpy(&word, target.bytes.data(), sizeof word);
  RC_ASSERT(word == model);
}

}  // namespace
}  // namespace pacecar::atomics_property
