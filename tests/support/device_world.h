// The ranks of a communicator in one process: rings, trees and pairs whose ends are joined
// directly, and kernels with their arguments as NCCL's host code writes them.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "bench/nccl/cpu_device/collectives/kernel.h"
#include "bench/nccl/cpu_device/collectives/work.h"
#include "tests/support/device_communicator.h"

namespace pacecar::test {

// ncclDevWorkColl.
struct CollectiveFields {
  uint32_t lowest = 0;  // channels
  uint32_t highest = 0;
  int root = 0;
  const char* send = nullptr;
  char* receive = nullptr;
  std::array<uint64_t, 3> counts{};  // of the lowest, each middle and the highest channel
  std::array<uint64_t, 3> grains{1, 1, 1};
  uint64_t operand = 0;
  bool net_registered = false;
  bool one_rank_per_node = false;
  bool profiled = false;

  uint64_t total() const {
    const uint64_t middles = highest > lowest + 1 ? highest - lowest - 1 : 0;
    return counts[0] + middles * counts[1] + counts[2];
  }
  std::vector<char> bytes(const nccl::cpu::Layout& layout) const {
    const auto& at = layout.collective;
    std::vector<char> work(at.bytes);
    put(work.data(), 0,
        lowest | highest << 8 | 16U << 16 | (profiled ? at.profiled : 0) |
            (net_registered ? at.net_registered : 0) |
            (one_rank_per_node ? at.one_rank_per_node : 0));
    put(work.data(), 4, root);
    put(work.data(), at.receive, receive);
    put(work.data(), at.send, send);
    put(work.data(), at.counts, counts);
    put(work.data(), at.chunks, grains[0] | grains[1] << 21 | grains[2] << 42);
    put(work.data(), at.operand, operand);
    return work;
  }
};

// ncclDevWorkP2p.
struct SendReceiveFields {
  struct Direction {
    const char* address = nullptr;
    size_t bytes = 0;
    int peer = 0;
    uint8_t channels = 0;
    uint8_t chunk = 0;  // of eight bits
    bool ll = false;
    bool net_registered = false;
  };
  Direction send{};
  Direction receive{};
  uint8_t channels = 1;  // of all, a power of two
  uint8_t base = 0;
  bool profiled = false;

  std::vector<char> bytes() const {
    std::vector<char> work(48);
    for (size_t i = 0; i < 2; ++i) {
      const Direction& one = i == 0 ? send : receive;
      put(work.data(), 8 * i, one.address);
      put(work.data(), 16 + 8 * i, one.bytes);
      put(work.data(), 32 + 4 * i, one.peer);
      put(work.data(), 42 + i, one.channels);
      put(work.data(), 44 + i, one.chunk);
    }
    put(work.data(), 40, channels);
    put(work.data(), 41, base);
    put(work.data(), 46,
        static_cast<uint8_t>((send.ll ? 1 : 0) | (receive.ll ? 2 : 0) |
                             (send.net_registered ? 4 : 0) | (receive.net_registered ? 8 : 0) |
                             (profiled ? 1 << 6 : 0)));
    return work;
  }
};

// ncclDevKernelArgs, batches, and works. A layer has one batch for each block; the
// block goes on with its batch of the next layer.
class LaunchArguments {
 public:
  using Kind = nccl::cpu::Batch::Kind;
  using Storage = nccl::cpu::Arguments::Storage;

  LaunchArguments(char* communicator, uint64_t channels, Storage storage = Storage::kArguments)
      : communicator_(communicator), channels_(channels), storage_(storage) {}

  size_t blocks() const { return static_cast<size_t>(std::popcount(channels_)); }

  // Works of one size. `extends`: the layer before, which must have this kind and function.
  void add_layer(Kind kind, uint32_t function, const std::vector<std::vector<char>>& works,
                 bool extends = false) {
    if (!layers_.empty()) layers_.back().extended = extends;
    layers_.push_back({kind,
                       function,
                       static_cast<uint32_t>(works_.size()),
                       (uint64_t{1} << works.size()) - 1,
                       false,
                       {}});
    for (const auto& work : works) works_.insert(works_.end(), work.begin(), work.end());
  }
  // The works of a layer that one block does.
  void choose(size_t layer, size_t block, uint64_t works) { layers_[layer].chosen[block] = works; }
  // Where the last work ends in the FIFO, as it counts.
  uint32_t end_in_fifo() const { return kFifoBegin + static_cast<uint32_t>(works_.size()); }

  // The bytes of a launch, with pointers into this object.
  std::vector<char> bytes() {
    const size_t head = 32 + 16 * blocks() * layers_.size();
    std::vector<char> all(head);
    put(all.data(), 0, communicator_);
    put(all.data(), 8, channels_);
    put(all.data(), 16, storage_);
    const bool inside = storage_ == Storage::kArguments;
    uint32_t base = static_cast<uint32_t>(head);
    if (!inside) base = storage_ == Storage::kFifo ? kFifoBegin : 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const auto jump = static_cast<uint32_t>(i + 1 < layers_.size() ? blocks() : 0);
      for (size_t block = 0; block < blocks(); ++block) {
        char* const batch = all.data() + 32 + 16 * (i * blocks() + block);
        put(batch, 0,
            jump | (layer.extended ? 1U << 14 : 0) | static_cast<uint32_t>(layer.kind) << 15 |
                layer.function << 17);
        put(batch, 4, base + layer.offset);
        const auto chosen = layer.chosen.find(block);
        put(batch, 8, chosen == layer.chosen.end() ? layer.works : chosen->second);
      }
    }
    if (inside) {
      all.insert(all.end(), works_.begin(), works_.end());
      return all;
    }
    // The FIFO begins in its middle.
    outside_.assign(storage_ == Storage::kFifo ? kFifoBytes : works_.size(), 0);
    const uint32_t mask = storage_ == Storage::kFifo ? kFifoBytes - 1 : ~uint32_t{0};
    std::ranges::copy(works_, outside_.begin() + (base & mask));
    put(all.data(), 20, mask);
    put(all.data(), 24, outside_.data());
    return all;
  }

 private:
  static constexpr uint32_t kFifoBytes = 1 << 16;
  static constexpr uint32_t kFifoBegin = 5 * kFifoBytes + 4096;

  struct Layer {
    Kind kind;
    uint32_t function;
    uint32_t offset;
    uint64_t works;
    bool extended;
    std::map<size_t, uint64_t> chosen;
  };
  char* communicator_;
  uint64_t channels_;
  Storage storage_;
  std::vector<Layer> layers_;
  std::vector<char> works_;
  std::vector<char> outside_;
};

class DeviceWorld {
 public:
  using Fifo = DeviceLink::Fifo;

  // `fifo_of`: what each link has, by the number of its connection.
  DeviceWorld(const nccl::cpu::Layout& layout, int ranks, int channels, const StepBytes& bytes,
              std::function<Fifo(int)> fifo_of)
      : bytes_(bytes), fifo_of_(std::move(fifo_of)) {
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.emplace_back(layout, rank, ranks, channels, bytes);
    }
  }

  DeviceCommunicator& rank(size_t number) { return ranks_[number]; }
  int ranks() const { return static_cast<int>(ranks_.size()); }

  void connect(int channel, int from, int to, int index) {
    auto& link = links_[{channel, from, to, index}];
    if (link) return;
    link = std::make_unique<DeviceLink>(bytes_, index == 0 ? bytes_.simple : bytes_.p2p,
                                        fifo_of_(index));
    join(*link, ranks_[static_cast<size_t>(from)], ranks_[static_cast<size_t>(to)], channel, index);
  }
  // One that was connected.
  DeviceLink& link(int channel, int from, int to, int index) {
    return *links_.at({channel, from, to, index});
  }
  void set_ring(int channel, const std::vector<int>& order) {
    for (DeviceCommunicator& rank : ranks_) rank.set_ring(channel, order);
    for (size_t i = 0; i < order.size(); ++i) {
      connect(channel, order[i], order[(i + 1) % order.size()], 0);
    }
  }
  // The parent of each rank; -1: the root. Nobody has more than three below.
  void set_tree(int channel, const std::vector<int>& parents) {
    for (DeviceCommunicator& rank : ranks_) {
      std::array<int, 3> down{-1, -1, -1};
      size_t below = 0;
      for (int other = 0; other < ranks(); ++other) {
        if (parents[static_cast<size_t>(other)] == rank.rank()) down.at(below++) = other;
      }
      const int up = parents[static_cast<size_t>(rank.rank())];
      rank.set_tree(channel, up, down);
      if (up < 0) continue;
      connect(channel, rank.rank(), up, 0);
      connect(channel, up, rank.rank(), 0);
    }
  }

  // Each rank's kernel, and its arguments; they are advanced at random. False: nobody can go on.
  static bool run(const nccl::cpu::Library& library, std::vector<LaunchArguments>& arguments,
                  uint64_t seed) {
    constexpr int kTurns = 1'000'000;
    std::vector<std::unique_ptr<nccl::cpu::Kernel>> kernels;
    for (LaunchArguments& one : arguments) {
      const std::vector<char> bytes = one.bytes();
      kernels.push_back(
          std::make_unique<nccl::cpu::Kernel>(library, bytes.data(), bytes.size(), one.blocks()));
    }
    std::mt19937_64 random(seed);
    for (int turn = 0; turn < kTurns && !kernels.empty(); ++turn) {
      const auto next = kernels.begin() + static_cast<long>(random() % kernels.size());
      if ((*next)->advance()) kernels.erase(next);
    }
    return kernels.empty();
  }

 private:
  StepBytes bytes_;
  std::function<Fifo(int)> fifo_of_;
  std::deque<DeviceCommunicator> ranks_;
  std::map<std::tuple<int, int, int, int>, std::unique_ptr<DeviceLink>> links_;
};

}  // namespace pacecar::test
