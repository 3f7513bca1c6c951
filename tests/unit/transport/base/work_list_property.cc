// WorkList against a deque without repetitions.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>

#include "transport/base/prng.h"
#include "transport/base/work_list.h"

namespace pacecar::work_list_property {
namespace {

RC_GTEST_PROP(WorkList, BehavesAsADequeWithoutRepetitions, (uint64_t seed)) {
  Prng prng(seed);
  uint64_t numbers = 1 + prng.below(9);
  WorkList list(numbers);
  std::deque<uint32_t> model;
  for (int i = 0; i < 300; ++i) {
    const auto number = static_cast<uint32_t>(prng.below(numbers));
    const bool listed = std::ranges::find(model, number) != model.end();
    RC_ASSERT(list.listed(number) == listed);
    if (prng.below(50) == 0) list.widen(++numbers);
    switch (prng.below(3)) {
      case 0:
        list.add(number);
        if (!listed) model.push_back(number);
        break;
      case 1:
        list.remove(number);
        std::erase(model, number);
        break;
      default:
        if (model.empty()) break;
        RC_ASSERT(list.front() == model.front());
        RC_ASSERT(list.take() == model.front());
        model.pop_front();
    }
    RC_ASSERT(list.size() == model.size());
    RC_ASSERT(list.empty() == model.empty());
  }
}

}  // namespace
}  // namespace pacecar::work_list_property
