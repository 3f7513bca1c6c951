// A block of NCCL's kernels in the midst of neighbours: its connections lead to reference peers
// (reference_peer.h), with which it takes turns.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/collectives/transfers.h"
#include "tests/support/device_communicator.h"
#include "tests/support/reference_peer.h"

namespace pacecar::test {

using Bytes = std::vector<char>;

inline Bytes random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (char& one : bytes) one = static_cast<char>(random());
  return bytes;
}
inline std::vector<Bytes> random_transfers(const std::vector<size_t>& sizes, uint64_t seed) {
  std::vector<Bytes> all;
  for (const size_t size : sizes) all.push_back(random_bytes(size, seed++));
  return all;
}

// What a transfer can have.
inline size_t most_bytes(const ProtocolUse& use) {
  return use.bytes.data(use.protocol) * use.slices * use.slice_steps;
}

inline std::string name(const ProtocolUse& use, DeviceLink::Fifo fifo) {
  return "protocol " + std::to_string(static_cast<int>(use.protocol)) + ", slices " +
         std::to_string(use.slices) + " x " + std::to_string(use.slice_steps) + ", fifo " +
         std::to_string(static_cast<int>(fifo));
}

// Rank 0 with three neighbours, of whom there are only the connections, of number `index`.
class Middle {
 public:
  explicit Middle(const ProtocolUse& use, DeviceLink::Fifo fifo = DeviceLink::Fifo::kNone,
                  uint64_t step = 0, int index = 0)
      : communicator_(*nccl::cpu::layout_of(22907), 0, kRanks, 1, use.bytes) {
    for (int peer = 1; peer < kRanks; ++peer) {
      for (const bool sends : {true, false}) {
        DeviceLink& link = links_.emplace_back(use.bytes, use.bytes.simple, fifo);
        link.set_head(step);
        link.set_tail(step);
        link.write_info(communicator_.info(0, peer, sends, index), step);
      }
    }
  }

  const nccl::cpu::Block& block() const { return block_; }
  DeviceCommunicator& communicator() { return communicator_; }
  DeviceLink& to(int peer) { return links_[2 * static_cast<size_t>(peer) - 2]; }
  DeviceLink& from(int peer) { return links_[2 * static_cast<size_t>(peer) - 1]; }

 private:
  static constexpr int kRanks = 4;

  DeviceCommunicator communicator_;
  std::deque<DeviceLink> links_;
  nccl::cpu::Block block_{*nccl::cpu::layout_of(22907), communicator_.address(), 0};
};

// One group of transfers.
inline nccl::cpu::Task run_all(const nccl::cpu::Block& block, ProtocolUse use,
                               nccl::cpu::Arithmetic arithmetic, nccl::cpu::Ends ends,
                               std::vector<nccl::cpu::Transfers::Transfer> all) {
  nccl::cpu::Transfers transfers(block, use.protocol, {use.slices, use.slice_steps}, arithmetic,
                                 ends);
  for (const auto& one : all) co_await transfers.run(one);
}

// A neighbour that sends `transfers`, or expects to receive them. `users`: for each transfer its
// place in a buffer of the block's user that is registered with the NIC.
class Neighbour {
 public:
  enum class Role { kSends, kReceives };

  Neighbour(DeviceLink& link, const ProtocolUse& use, Role role, std::vector<Bytes> transfers,
            uint64_t step = 0, std::vector<char*> users = {})
      : peer_(link, use, step),
        bytes_(use.element_bytes),
        role_(role),
        transfers_(std::move(transfers)),
        users_(std::move(users)) {
    begin();
  }

  ReferencePeer& peer() { return peer_; }

  // As far as it goes now; true: all is done.
  bool advance() {
    while (done_ < transfers_.size() && (role_ == Role::kSends ? peer_.send() : peer_.receive())) {
      EXPECT_EQ(peer_.data(), transfers_[done_]) << "of " << done_;
      ++done_;
      begin();
    }
    return done_ == transfers_.size();
  }

 private:
  void begin() {
    if (done_ == transfers_.size()) return;
    char* const user = users_.empty() ? nullptr : users_[done_];
    if (role_ == Role::kSends) return peer_.begin(transfers_[done_], user);
    peer_.begin(transfers_[done_].size() / bytes_, user);
  }

  ReferencePeer peer_;
  size_t bytes_;
  Role role_;
  std::vector<Bytes> transfers_;
  std::vector<char*> users_;
  size_t done_ = 0;
};

// Lets a block and its neighbours take turns, the later ones more seldom; false: nobody can go on.
inline bool run_together(nccl::cpu::Fiber& fiber, std::deque<Neighbour>& neighbours) {
  constexpr size_t kTurns = 200'000;
  for (size_t turn = 0; turn < kTurns; ++turn) {
    if (!fiber.ended()) fiber.advance();
    bool all = true;
    for (size_t i = 0; i < neighbours.size(); ++i) {
      if (turn % (i + 1) == 0) all = neighbours[i].advance() && all;
    }
    if (all && fiber.ended()) return true;
  }
  return false;
}

}  // namespace pacecar::test
