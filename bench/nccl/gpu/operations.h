// NCCL's operations with what each rank must hold afterwards.
//
// A result is a list of blocks of `count` elements. Element j of a block is the sum of input
// element `first_index` + j over ranks `first_rank` ... `first_rank` + `ranks` - 1. Each input
// element is a hash of rank, index and `salt`, a whole number below 2^20. So sums over up to 16
// ranks are exact in float, in any order. An element from a wrong index, rank or operation has
// another value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bench/nccl/gpu/device.h"

namespace pacecar::nccl {

inline constexpr int kMaxRanks = 16;
inline constexpr int kRoot = 0;

float element(uint64_t salt, int rank, size_t index);

// What a rank does in one operation. Sizes are in elements.
struct Call {
  const float* send = nullptr;
  float* receive = nullptr;
  size_t count = 0;  // NCCL's count; per rank if Operation::divides
};

struct Block {
  int first_rank = 0;
  int ranks = 1;
  size_t first_index = 0;
};

enum class InPlace { kNever, kSameBuffer, kInReceived, kInSent };

struct Operation {
  std::string_view name;
  bool divides;      // true: the reported size is `count` x ranks (the larger buffer)
  bool sends_all;    // true: the send buffer holds `count` elements per rank
  InPlace in_place;  // which buffer contains the other in place
  void (*launch)(const Communicator& job, const Call& call);
  std::vector<Block> (*result)(int rank, int ranks, size_t count);
};

std::span<const Operation> operations();

// The number of wrong elements of `received`; prints the first of them on stderr.
size_t count_wrong(const Operation& operation, const Communicator& job, uint64_t salt, size_t count,
                   std::span<const float> received);

}  // namespace pacecar::nccl
