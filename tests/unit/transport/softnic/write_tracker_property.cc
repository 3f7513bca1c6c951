// WriteTracker against a table of writes whose packets arrive in any order.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "transport/base/prng.h"
#include "transport/base/seq.h"
#include "transport/softnic/extended/write_tracker.h"

namespace pacecar::write_tracker_property {
namespace {

struct Model {
  struct Write {
    Bytes received = 0;
    Bytes total = 0;
    bool started = false;
    bool over = false;
  };
  uint64_t capacity;
  uint64_t oldest = 0;                    // not finished
  std::map<uint64_t, Write> writes = {};  // by number

  bool acceptable(uint64_t msn, Bytes payload, Bytes total) {
    if (msn < oldest || msn >= oldest + capacity) return false;
    const Write& write = writes[msn];
    return !write.over && (!write.started || write.total == total) &&
           write.received + payload <= total;
  }
  void end(uint64_t msn) {
    if (msn < oldest || msn >= oldest + capacity) return;
    writes[msn].over = true;
    while (writes[oldest].over) writes.erase(oldest++);
  }
};

RC_GTEST_PROP(WriteTracker, BehavesAsATable, (uint64_t seed)) {
  Prng prng(seed);
  Model model{.capacity = 1 + prng.below(20)};
  WriteTracker tracker(static_cast<uint32_t>(model.capacity));
  for (int i = 0; i < 2000; ++i) {
    // Mostly a number in the window, sometimes one that is finished or too far ahead.
    const uint64_t back = std::min<uint64_t>(model.oldest, prng.chance(0.1) ? 5 : 0);
    const uint64_t msn = model.oldest - back + prng.below(model.capacity + (back != 0 ? 10 : 0));
    const auto wire = static_cast<uint32_t>(msn & kPsnMask);
    if (prng.chance(0.1)) {
      tracker.cancel(wire);
      model.end(msn);
      continue;
    }
    // Each write has one true length; some packets carry a wrong one.
    const Bytes total = msn % 4 * 10 + (prng.chance(0.05) ? 1 : 0);
    const Bytes payload = prng.below(total + (prng.chance(0.05) ? 20 : 1));
    const bool acceptable = model.acceptable(msn, payload, total);
    WriteTracker::Write* const found = tracker.find(wire, payload, total);
    RC_ASSERT((found != nullptr) == acceptable);
    if (!acceptable) continue;
    const bool complete = tracker.count(*found, payload, total);
    Model::Write& write = model.writes[msn];
    write.started = true;
    write.total = total;
    write.received += payload;
    RC_ASSERT(complete == (write.received == total));
    if (write.received == total) model.end(msn);
  }
}

// Numbers wrap on the wire after 2^24 writes.
TEST(WriteTracker, TrackingContinuesWhereNumbersWrap) {
  WriteTracker tracker(4);
  for (uint64_t msn = 0; msn < (uint64_t{1} << 24) + 1000; ++msn) {
    WriteTracker::Write* const write = tracker.find(static_cast<uint32_t>(msn & kPsnMask), 8, 8);
    ASSERT_NE(write, nullptr);
    ASSERT_TRUE(tracker.count(*write, 8, 8));
  }
  EXPECT_EQ(tracker.find(999, 8, 8), nullptr);
  EXPECT_NE(tracker.find(1003, 8, 8), nullptr);
  EXPECT_EQ(tracker.find(1004, 8, 8), nullptr);
}

// A sum of bytes beyond 32 bits is refused.
TEST(WriteTracker, BytesAreCountedUpToFourGigabytes) {
  WriteTracker tracker(1);
  constexpr Bytes kMost = 0xFFFF'FFFF;
  WriteTracker::Write* const write = tracker.find(0, kMost - 1, kMost);
  ASSERT_NE(write, nullptr);
  EXPECT_FALSE(tracker.count(*write, kMost - 1, kMost));
  EXPECT_EQ(tracker.find(0, 2, kMost), nullptr);
  ASSERT_EQ(tracker.find(0, 1, kMost), write);
  EXPECT_TRUE(tracker.count(*write, 1, kMost));
}

}  // namespace
}  // namespace pacecar::write_tracker_property
