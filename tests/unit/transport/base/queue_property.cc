// The queues against std::deque, and sequence numbers against a search.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/seq.h"
#include "transport/base/spsc_ring.h"

namespace pacecar::queue_property {
namespace {

RC_GTEST_PROP(FixedQueue, BehavesAsABoundedDeque, (const std::vector<bool>& pushes)) {
  const auto capacity = *rc::gen::inRange<size_t>(1, 10);
  FixedQueue<int> queue(capacity);
  std::deque<int> model;
  int next = 0;
  for (const bool push : pushes) {
    if (push) {
      RC_ASSERT(queue.push(next) == (model.size() < capacity));
      if (model.size() < capacity) model.push_back(next);
      ++next;
    } else if (!model.empty()) {
      RC_ASSERT(queue.front() == model.front());
      queue.pop_front();
      model.pop_front();
    }
    RC_ASSERT(queue.size() == model.size());
    RC_ASSERT(queue.empty() == model.empty());
    RC_ASSERT(queue.full() == (model.size() == capacity));
    for (size_t i = 0; i < model.size(); ++i) RC_ASSERT(queue[i] == model[i]);
  }
}

RC_GTEST_PROP(SpscRing, BehavesAsABoundedDeque, (const std::vector<bool>& pushes)) {
  const size_t capacity = size_t{1} << *rc::gen::inRange(0, 4);
  SpscRing<int> ring(capacity);
  std::deque<int> model;
  int next = 0;
  for (const bool push : pushes) {
    if (push) {
      RC_ASSERT(ring.push(next) == (model.size() < capacity));
      if (model.size() < capacity) model.push_back(next);
      ++next;
    } else {
      int value = -1;
      RC_ASSERT(ring.pop(value) == !model.empty());
      RC_ASSERT(value == (model.empty() ? -1 : model.front()));
      if (!model.empty()) model.pop_front();
    }
    RC_ASSERT(ring.empty() == model.empty());
  }
}

RC_GTEST_PROP(ExpandPsn, ExpandedPsnIsTheNearestWithTheWireBits, ()) {
  const auto reference = *rc::gen::oneOf(rc::gen::inRange<uint64_t>(0, 1U << 26),
                                         rc::gen::inRange<uint64_t>(0, uint64_t{1} << 62));
  const auto wire = *rc::gen::inRange<uint32_t>(0, 1U << 24);
  const auto distance = [reference](uint64_t psn) {
    return psn > reference ? psn - reference : reference - psn;
  };
  const uint64_t expanded = expand_psn(reference, wire);
  RC_ASSERT((expanded & 0xffffff) == wire);
  RC_ASSERT(distance(expanded) <= distance(expanded + (1U << 24)));
  if (expanded >= 1U << 24) RC_ASSERT(distance(expanded) <= distance(expanded - (1U << 24)));
}

}  // namespace
}  // namespace pacecar::queue_property
