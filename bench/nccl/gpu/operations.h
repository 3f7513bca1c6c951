// NCCL's operations with what each rank must hold afterwards.
//
// An operation's result is made of blocks of `count` elements; element j of a block is the sum,
// over some consecutive ranks, of what those hold at `first_index` + j. Values are whole numbers
// below 2^20, a hash of rank, index and `salt`: the sum over up to 16 ranks is exact in a float in
// any order, and an element of another place, rank or operation is noticed.
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
  size_t count = 0;  // as NCCL counts: for each rank where the size is divided among ranks
};

struct Block {
  int first_rank = 0;
  int ranks = 1;
  size_t first_index = 0;
};

enum class InPlace { kNever, kSameBuffer, kInReceived, kInSent };

struct Operation {
  std::string_view name;
  bool divides;      // its size is that of the larger of its buffers, `count` times the ranks
  bool sends_all;    // it sends `count` for each rank
  InPlace in_place;  // the place of the other buffer, if one is used for both
  void (*launch)(const Communicator& job, const Call& call);
  std::vector<Block> (*result)(int rank, int ranks, size_t count);
};

std::span<const Operation> operations();

// The number of wrong elements of `received`; prints the first of them on stderr.
size_t count_wrong(const Operation& operation, const Communicator& job, uint64_t salt, size_t count,
                   std::span<const float> received);

}  // namespace pacecar::nccl
