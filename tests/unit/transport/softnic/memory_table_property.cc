// MemoryTable against std::map, with keys that collide much.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "transport/base/prng.h"
#include "transport/softnic/memory_table.h"

namespace pacecar::memory_table_property {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLongest = uint64_t{1} << 63;

// Few distinct keys with equal low bits, so that long chains collide; sometimes 0 or a key in use.
// Remote addresses are made of them too, some as high as possible.
uint32_t colliding_key(void* context) {
  Prng& prng = *static_cast<Prng*>(context);
  if (prng.chance(0.2)) return ~0U;
  return static_cast<uint32_t>(prng.below(6) << 16 | prng.below(3) << 2);
}

struct Region {
  uint64_t address;
  uint64_t length;
  Access access;
  uint64_t remote = 0;
};

uint8_t* pointer(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

class Run {
 public:
  explicit Run(uint64_t seed)
      : prng_(seed),
        keys_(seed + 1),
        capacity_(static_cast<uint32_t>(1 + prng_.below(12))),
        table_(capacity_, {colliding_key, &keys_}) {}

  void step() {
    if (prng_.chance(0.4)) return add();
    if (prng_.chance(0.5)) return remove();
    look_up();
  }

 private:
  uint64_t random_address() {
    const uint64_t small = prng_.below(100) + 1;
    return prng_.chance(0.5) ? small : kMax - small;
  }
  uint64_t random_length() {
    if (prng_.chance(0.1)) return kMax - prng_.below(200);
    if (prng_.chance(0.1)) return kLongest + 2 - prng_.below(4);
    return prng_.below(120);
  }

  void add() {
    Region region{random_address(), random_length(), static_cast<Access>(prng_.below(4))};
    const auto added = table_.add(pointer(region.address), region.length, region.access);
    const bool wraps = region.length > 0 && region.address > kMax - region.length;
    if (region.length == 0 || region.length > kLongest || wraps) {
      RC_ASSERT(!added);
      RC_ASSERT(added.error().code == ErrorCode::kInvalidArgument);
    } else if (model_.size() == capacity_) {
      RC_ASSERT(!added);
      RC_ASSERT(added.error().code == ErrorCode::kUnavailable);
    } else {
      RC_ASSERT(added.has_value());
      RC_ASSERT(added->key != 0);
      RC_ASSERT(added->key == ~0U || (added->key & 0xFFF8'FFF3) == 0);  // as drawn
      region.remote = added->remote_address;
      RC_ASSERT(region.remote % kRemoteAlignment == region.address % kRemoteAlignment);
      RC_ASSERT(region.remote <= kMax - region.length);
      RC_ASSERT(model_.emplace(added->key, region).second);
    }
    RC_ASSERT(table_.size() == model_.size());
  }
  uint32_t some_key() {
    if (!model_.empty() && prng_.chance(0.8)) {
      return std::next(model_.begin(), static_cast<long>(prng_.below(model_.size())))->first;
    }
    return colliding_key(&keys_);
  }
  void remove() {
    const uint32_t key = some_key();
    RC_ASSERT(table_.remove(key) == (model_.erase(key) == 1));
    RC_ASSERT(table_.size() == model_.size());
    for (const auto& [other, region] : model_) {
      RC_ASSERT(table_.covers(other, pointer(region.address), region.length));
    }
  }
  void look_up() {
    const uint32_t key = some_key();
    const auto found = model_.find(key);
    uint64_t address = random_address();
    uint64_t remote = random_address();
    if (found != model_.end() && prng_.chance(0.7)) {
      const uint64_t reach = std::min(found->second.length, kMax - 3) + 3;  // beyond both ends
      const uint64_t offset = prng_.below(reach) - 1;
      address = found->second.address + offset;
      remote = found->second.remote + offset;
    }
    const uint64_t length = random_length();
    const Region region = found == model_.end() ? Region{} : found->second;
    const bool local = within(address, length, region.address, region.length);
    const bool reaches = within(remote, length, region.remote, region.length);
    RC_ASSERT(table_.covers(key, pointer(address), length) == local);
    RC_ASSERT(table_.owner_may_write(key, pointer(address), length) ==
              (local && region.access != Access::kLocalRead));
    const auto place = [&](Access wanted) {
      const bool may = reaches && allows(region.access, wanted);
      return may ? pointer(region.address + (remote - region.remote)) : nullptr;
    };
    RC_ASSERT(table_.writable(key, remote, length) == place(Access::kRemoteWrite));
    RC_ASSERT(table_.readable(key, remote, length) == place(Access::kRemoteRead));
    // The range of a key that permits no remote write is empty.
    const auto range = table_.writable_range(key);
    if (length > 0) RC_ASSERT(range.writable(remote, length) == place(Access::kRemoteWrite));
  }
  static bool within(uint64_t address, uint64_t length, uint64_t begin, uint64_t size) {
    if (size == 0) return false;  // there is no such region
    using Wide = unsigned __int128;
    return address >= begin && Wide{address} + length <= Wide{begin} + size;
  }

  Prng prng_;
  Prng keys_;
  uint32_t capacity_;
  MemoryTable table_;
  std::map<uint32_t, Region> model_;
};

RC_GTEST_PROP(MemoryTable, BehavesAsAMap, (uint64_t seed)) {
  Run run(seed);
  for (int i = 0; i < 500; ++i) run.step();
}

}  // namespace
}  // namespace pacecar::memory_table_property
