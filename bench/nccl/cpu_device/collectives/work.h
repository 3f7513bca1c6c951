// The work of a block, as NCCL's host code writes it behind a kernel's arguments or into a buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bench/nccl/cpu_device/collectives/layout.h"
#include "bench/nccl/cpu_device/collectives/raw.h"

namespace pacecar::nccl::cpu {

// ncclDevKernelArgs, and the batches that follow it.
struct Arguments {
  enum class Storage : uint8_t { kArguments, kFifo, kPersistent };
  static constexpr size_t kBytes = 32;

  explicit Arguments(const char* arguments)
      : begin(arguments),
        communicator(pointer(arguments, 0)),
        channel_mask(field<uint64_t>(arguments, 8)),
        storage(field<Storage>(arguments, 16)),
        work_mask(field<uint32_t>(arguments, 20)),
        work(pointer(arguments, 24)) {}

  const char* begin;
  char* communicator;
  uint64_t channel_mask;
  Storage storage;
  uint32_t work_mask;
  const char* work;

  const char* work_at(uint32_t offset) const {
    return storage == Storage::kArguments ? begin + offset : work + (offset & work_mask);
  }
};

// ncclDevWorkBatch: up to 64 works of one function.
struct Batch {
  enum class Kind { kSendReceive, kCollective, kRegisteredCollective, kBroadcasts };

  explicit Batch(const Arguments& arguments, size_t index) {
    constexpr size_t kBytes = 16;
    const char* const batch = arguments.begin + Arguments::kBytes + index * kBytes;
    const auto bits = field<uint32_t>(batch, 0);
    next_jump = bits & 0x3fff;
    extended_by_next = bits >> 14 & 1;
    kind = static_cast<Kind>(bits >> 15 & 3);
    function = bits >> 17;
    offset = field<uint32_t>(batch, 4);
    works = field<uint64_t>(batch, 8);
  }

  uint32_t next_jump;  // to the block's next batch; 0: this is the last
  bool extended_by_next;
  Kind kind;
  uint32_t function;
  uint32_t offset;  // of work 0
  uint64_t works;   // a bit for each work that is there
};

// ncclDevWorkColl.
class CollectiveWork {
 public:
  CollectiveWork(const Layout& layout, const char* work)
      : layout_(layout.collective), work_(work), bits_(field<uint32_t>(work, 0)) {}

  int lowest_channel() const { return static_cast<int>(bits_ & 0xff); }
  int highest_channel() const { return static_cast<int>(bits_ >> 8 & 0xff); }
  bool peer_registered() const { return (bits_ & layout_.registered) != 0; }
  bool net_registered() const { return (bits_ & layout_.net_registered) != 0; }
  bool one_rank_per_node() const { return (bits_ & layout_.one_rank_per_node) != 0; }
  bool profiled() const { return (bits_ & layout_.profiled) != 0; }
  int root() const { return field<int>(work_, 4); }
  char* receive() const { return pointer(work_, layout_.receive); }
  const char* send() const { return pointer(work_, layout_.send); }
  // redOpArg, or the value at its address if it is a pointer.
  uint64_t operand(size_t element_bytes) const {
    const auto value = field<uint64_t>(work_, layout_.operand);
    if ((bits_ & layout_.operand_is_pointer) == 0) return value;
    uint64_t scalar = 0;
    std::memcpy(&scalar, pointer(work_, layout_.operand), element_bytes);
    return scalar;
  }

  // What a channel does, in elements.
  struct Part {
    size_t total;  // of all channels
    size_t begin;
    size_t count;
    size_t chunk;
  };
  Part part(int channel, size_t grain_bytes, size_t element_bytes) const {
    const size_t low = count(0);
    const size_t middle = count(1);
    const auto middles = static_cast<size_t>(std::max(highest_channel() - lowest_channel() - 1, 0));
    const auto grains = field<uint64_t>(work_, layout_.chunks);
    const auto chunk = [&](unsigned which) {
      return (grains >> 21 * which & 0x1fffff) * (grain_bytes / element_bytes);
    };
    const bool alone = highest_channel() == lowest_channel();
    const size_t total = low + middle * middles + (alone ? 0 : count(2));
    if (channel == lowest_channel()) return {total, 0, low, chunk(0)};
    if (channel == highest_channel()) return {total, low + middles * middle, count(2), chunk(2)};
    const auto before = static_cast<size_t>(channel - lowest_channel() - 1);
    return {total, low + before * middle, middle, chunk(1)};
  }

 private:
  size_t count(size_t which) const { return field<size_t>(work_, layout_.counts + 8 * which); }

  const decltype(Layout::collective)& layout_;
  const char* work_;
  uint32_t bits_;
};

// `bound` is a power of two.
inline uint32_t reversed_bits(uint32_t number, uint32_t bound) {
  uint32_t result = 0;
  for (uint32_t bit = 1; bit < bound; bit <<= 1) {
    result = result << 1 | (number & 1);
    number >>= 1;
  }
  return result;
}

// ncclDevWorkP2p: a send and a receive.
class SendReceiveWork {
 public:
  static constexpr size_t kBytes = 48;

  SendReceiveWork(const Layout& layout, const char* work) : layout_(layout), work_(work) {}

  struct Direction {
    char* address;
    size_t bytes;
    int peer;
    uint32_t channels;
    size_t chunk;
    bool ll;
    bool net_registered;  // the NIC reads or writes the user's buffer
  };
  Direction send() const { return direction(0); }
  Direction receive() const { return direction(1); }
  bool peer_registered() const { return (flags() & 0b110000) != 0; }
  bool profiled() const {
    return layout_.p2p_profiled_bit != kAbsent && (flags() >> layout_.p2p_profiled_bit & 1) != 0;
  }

  // The bytes of a direction that a channel carries; false when it carries none.
  bool part(const Direction& direction, int channel, size_t& begin, size_t& end) const {
    constexpr size_t kPage = 4096;
    const auto channels = field<uint8_t>(work_, 40);
    uint32_t number = static_cast<uint32_t>(channel - field<uint8_t>(work_, 41)) & (channels - 1U);
    if (layout_.reversed_parts) number = reversed_bits(number, channels);
    if (number >= direction.channels) return false;
    const size_t share = (direction.bytes + direction.channels - 1) / direction.channels;
    const size_t each = (share + kPage - 1) / kPage * kPage;
    begin = std::min(number * each, direction.bytes);
    end = std::min((number + 1) * each, direction.bytes);
    return true;
  }

 private:
  Direction direction(size_t which) const {
    return {.address = pointer(work_, 8 * which),
            .bytes = field<size_t>(work_, 16 + 8 * which),
            .peer = field<int>(work_, 32 + 4 * which),
            .channels = field<uint8_t>(work_, 42 + which),
            .chunk = of_eight_bits(field<uint8_t>(work_, 44 + which)),
            .ll = (flags() >> which & 1) != 0,
            .net_registered = (flags() >> (2 + which) & 1) != 0};
  }
  uint32_t flags() const { return field<uint8_t>(work_, 46); }
  // A number with five bits of exponent and three of mantissa.
  static size_t of_eight_bits(uint8_t bits) {
    const uint32_t exponent = bits >> 3;
    const size_t mantissa = (bits & 7U) | (exponent ? 8U : 0U);
    return mantissa << (exponent ? exponent - 1 : 0);
  }

  const Layout& layout_;
  const char* work_;
};

// ncclDevWorkBcast: a channel's part of one of several broadcasts.
struct BroadcastWork {
  static constexpr size_t kBytes = 48;

  explicit BroadcastWork(const char* work)
      : from_root(field<int>(work, 0)),
        chunk(field<uint32_t>(work, 4)),
        send(pointer(work, 8)),
        receive(pointer(work, 16)),
        bytes(field<size_t>(work, 24)) {}

  int from_root;  // steps around the ring
  size_t chunk;
  const char* send;  // of the root
  char* receive;
  size_t bytes;
};

}  // namespace pacecar::nccl::cpu
