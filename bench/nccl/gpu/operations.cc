#include "bench/nccl/gpu/operations.h"

#include <array>
#include <cstdio>

namespace pacecar::nccl {
namespace {

void all_reduce(const Communicator& job, const Call& call) {
  require_nccl(nccl().all_reduce(call.send, call.receive, call.count, kFloat, kSum, job.handle(),
                                 job.stream()),
               "ncclAllReduce");
}

void all_gather(const Communicator& job, const Call& call) {
  require_nccl(
      nccl().all_gather(call.send, call.receive, call.count, kFloat, job.handle(), job.stream()),
      "ncclAllGather");
}

void reduce_scatter(const Communicator& job, const Call& call) {
  require_nccl(nccl().reduce_scatter(call.send, call.receive, call.count, kFloat, kSum,
                                     job.handle(), job.stream()),
               "ncclReduceScatter");
}

void broadcast(const Communicator& job, const Call& call) {
  require_nccl(nccl().broadcast(call.send, call.receive, call.count, kFloat, kRoot, job.handle(),
                                job.stream()),
               "ncclBroadcast");
}

void reduce(const Communicator& job, const Call& call) {
  require_nccl(nccl().reduce(call.send, call.receive, call.count, kFloat, kSum, kRoot, job.handle(),
                             job.stream()),
               "ncclReduce");
}

int before(int rank, int ranks) { return (rank + ranks - 1) % ranks; }
int after(int rank, int ranks) { return (rank + 1) % ranks; }

void send_to(const Communicator& job, int peer, const float* data, size_t count) {
  require_nccl(nccl().send(data, count, kFloat, peer, job.handle(), job.stream()), "ncclSend");
}

void receive_from(const Communicator& job, int peer, float* data, size_t count) {
  require_nccl(nccl().receive(data, count, kFloat, peer, job.handle(), job.stream()), "ncclRecv");
}

void send_receive(const Communicator& job, const Call& call) {
  require_nccl(nccl().group_start(), "ncclGroupStart");
  send_to(job, after(job.rank(), job.ranks()), call.send, call.count);
  receive_from(job, before(job.rank(), job.ranks()), call.receive, call.count);
  require_nccl(nccl().group_end(), "ncclGroupEnd of ncclSend and ncclRecv");
}

void all_to_all(const Communicator& job, const Call& call) {
  require_nccl(nccl().group_start(), "ncclGroupStart");
  for (int peer = 0; peer < job.ranks(); ++peer) {
    const size_t place = static_cast<size_t>(peer) * call.count;
    send_to(job, peer, call.send + place, call.count);
    receive_from(job, peer, call.receive + place, call.count);
  }
  require_nccl(nccl().group_end(), "ncclGroupEnd of an all-to-all");
}

using Blocks = std::vector<Block>;

Blocks sum_of_all(int, int ranks, size_t) { return {{.ranks = ranks}}; }

Blocks own_share_of_sum(int rank, int ranks, size_t count) {
  return {{.ranks = ranks, .first_index = static_cast<size_t>(rank) * count}};
}

Blocks of_root(int, int, size_t) { return {{.first_rank = kRoot}}; }

Blocks sum_at_root(int rank, int ranks, size_t) {
  return rank == kRoot ? Blocks{{.ranks = ranks}} : Blocks{};
}

Blocks of_rank_before(int rank, int ranks, size_t) { return {{.first_rank = before(rank, ranks)}}; }

Blocks one_of_each_rank(int, int ranks, size_t) {
  Blocks blocks;
  for (int peer = 0; peer < ranks; ++peer) blocks.push_back({.first_rank = peer});
  return blocks;
}

Blocks own_share_of_each_rank(int rank, int ranks, size_t count) {
  Blocks blocks = one_of_each_rank(rank, ranks, count);
  for (Block& block : blocks) block.first_index = static_cast<size_t>(rank) * count;
  return blocks;
}

constexpr std::array kOperations = {
    Operation{"allreduce", false, false, InPlace::kSameBuffer, all_reduce, sum_of_all},
    Operation{"allgather", true, false, InPlace::kInReceived, all_gather, one_of_each_rank},
    Operation{"reducescatter", true, true, InPlace::kInSent, reduce_scatter, own_share_of_sum},
    Operation{"broadcast", false, false, InPlace::kSameBuffer, broadcast, of_root},
    Operation{"reduce", false, false, InPlace::kSameBuffer, reduce, sum_at_root},
    Operation{"sendrecv", false, false, InPlace::kNever, send_receive, of_rank_before},
    Operation{"alltoall", true, true, InPlace::kNever, all_to_all, own_share_of_each_rank},
};

float expected(const Block& block, uint64_t salt, size_t index) {
  float sum = 0;
  for (int rank = block.first_rank; rank < block.first_rank + block.ranks; ++rank) {
    sum += element(salt, rank, block.first_index + index);
  }
  return sum;
}

}  // namespace

float element(uint64_t salt, int rank, size_t index) {
  constexpr uint64_t kIndexFactor = 0x9e3779b97f4a7c15;  // odd multiplier with evenly spread bits
  constexpr uint64_t kSourceFactor = 0xc2b2ae3d27d4eb4f;
  constexpr int kUnusedBits = 64 - 20;
  const uint64_t source = salt * kMaxRanks + static_cast<uint64_t>(rank);
  uint64_t bits = (index + 1) * kIndexFactor ^ (source + 1) * kSourceFactor;
  bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93;
  return static_cast<float>(bits >> kUnusedBits);
}

std::span<const Operation> operations() { return kOperations; }

size_t count_wrong(const Operation& operation, const Communicator& job, uint64_t salt, size_t count,
                   std::span<const float> received) {
  size_t wrong = 0;
  size_t place = 0;
  for (const Block& block : operation.result(job.rank(), job.ranks(), count)) {
    for (size_t index = 0; index < count; ++index, ++place) {
      const float wanted = expected(block, salt, index);
      if (received[place] == wanted) continue;
      if (wrong++ > 0) continue;
      std::fprintf(stderr, "rank %d, %.*s of %zu: element %zu is %.1f, not %.1f\n", job.rank(),
                   static_cast<int>(operation.name.size()), operation.name.data(), count, place,
                   static_cast<double>(received[place]), static_cast<double>(wanted));
    }
  }
  return wrong;
}

}  // namespace pacecar::nccl
