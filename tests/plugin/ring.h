// Collectives around a ring of connections, as NCCL builds them from sends and receives.
#pragma once

#include <cstdint>
#include <span>

#include "tests/support/fake_nccl_host.h"

namespace pacecar::test {

// What rank `rank` brings to a sum.
inline uint32_t element(int rank, size_t index) {
  return static_cast<uint32_t>(index) * 2'654'435'761U + static_cast<uint32_t>(rank) * 97U;
}

inline std::span<uint8_t> as_bytes(std::span<uint32_t> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

inline std::span<uint32_t> as_elements(const Buffer& buffer) {
  return {reinterpret_cast<uint32_t*>(buffer.bytes().data()), buffer.bytes().size() / 4};
}

// One member's place in a ring.
struct Ring {
  const FakeNcclHost& host;
  void* send = nullptr;     // to the next member
  void* receive = nullptr;  // from the one before
  int position = 0;
  int members = 0;
};

// Sums `data` over all members, in place; `scratch` is as large. The buffers are registered with
// the sending and the receiving connection. Returns the bytes that this member has sent.
uint64_t ring_all_reduce(const Ring& ring, const Buffer& data, const Buffer& scratch);

}  // namespace pacecar::test
