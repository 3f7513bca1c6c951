// What NCCL's host code leaves for its kernels, byte for byte: a rank's communicator with its
// channels, and the buffers between two ranks. Offsets that all versions share are numbers here, as
// in NCCL's device.h; the other offsets come from the layout under test.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "bench/nccl/cpu_device/collectives/function_table.h"
#include "bench/nccl/cpu_device/collectives/layout.h"

namespace pacecar::test {

constexpr size_t kDeviceSteps = 8;

// Bytes of a step of each protocol, with flags, and of sends and receives.
struct StepBytes {
  uint32_t ll = 1024;
  uint32_t ll128 = 4096;
  uint32_t simple = 2048;
  uint32_t p2p = 1024;

  uint32_t of(nccl::cpu::Protocol protocol) const {
    return protocol == nccl::cpu::Protocol::kLl      ? ll
           : protocol == nccl::cpu::Protocol::kLl128 ? ll128
                                                     : simple;
  }
  // What a step of the protocol holds.
  size_t data(nccl::cpu::Protocol protocol) const {
    return protocol == nccl::cpu::Protocol::kLl      ? ll / 2
           : protocol == nccl::cpu::Protocol::kLl128 ? ll128 / 2048 * 1920
                                                     : simple;
  }
};

template <typename T>
void put(char* structure, size_t offset, T value) {
  std::memcpy(structure + offset, &value, sizeof(value));
}
template <typename T>
T get(const char* structure, size_t offset) {
  T value;
  std::memcpy(&value, structure + offset, sizeof(value));
  return value;
}

// From a sender to a receiver.
class DeviceLink {
 public:
  // ncclConnFifo, by which a GPU and the proxy thread of a network agree: none between GPUs.
  // Direct: the NIC can reach the user's buffers, where they are registered.
  enum class Fifo { kNone, kInOrder, kByOffset, kDirect };

  // `simple_step`: of the buffers of SIMPLE.
  DeviceLink(const StepBytes& bytes, uint32_t simple_step, Fifo fifo)
      : bytes_(bytes), simple_step_(simple_step), fifo_kind_(fifo) {
    for (const auto protocol : {nccl::cpu::Protocol::kLl, nccl::cpu::Protocol::kLl128}) {
      buffers_[static_cast<size_t>(protocol)].resize(kDeviceSteps * bytes.of(protocol) / 8);
    }
    buffers_[2].resize(kDeviceSteps * simple_step / 8);
    for (size_t slot = 0; slot < kDeviceSteps; ++slot) {
      announce(slot, kNothing);
      if (fifo != Fifo::kByOffset) continue;
      put(slot_of(slot), 0, 1);
      put(slot_of(slot), 4, static_cast<int>(slot * 3 % kDeviceSteps * simple_step));
    }
  }
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  bool has_fifo() const { return fifo_kind_ != Fifo::kNone; }
  // The bytes that the sender announced for a step.
  static constexpr int64_t kNothing = -1;
  int64_t announced(uint64_t step) { return get<int64_t>(slot_of(step), 8); }
  void announce(uint64_t step, int64_t bytes) { put(slot_of(step), 8, bytes); }
  uint64_t tail() const { return __atomic_load_n(tail_.get(), __ATOMIC_ACQUIRE); }
  uint64_t head() const { return __atomic_load_n(head_.get(), __ATOMIC_ACQUIRE); }
  void set_tail(uint64_t steps) { __atomic_store_n(tail_.get(), steps, __ATOMIC_RELEASE); }
  void set_head(uint64_t steps) { __atomic_store_n(head_.get(), steps, __ATOMIC_RELEASE); }

  // The buffer of a step.
  char* buffer(nccl::cpu::Protocol protocol, uint64_t step) {
    char* const all = begin_of(protocol);
    if (protocol != nccl::cpu::Protocol::kSimple) {
      return all + step % kDeviceSteps * bytes_.of(protocol);
    }
    return all + (fifo_kind_ == Fifo::kByOffset ? static_cast<size_t>(get<int>(slot_of(step), 4))
                                                : step % kDeviceSteps * simple_step_);
  }
  char* begin_of(nccl::cpu::Protocol protocol) {
    return reinterpret_cast<char*>(buffers_[static_cast<size_t>(protocol)].data());
  }

  // ncclConnInfo of one of the two ends.
  void write_info(char* info, uint64_t step) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      put(info, 8 * i, reinterpret_cast<char*>(buffers_[i].data()));
    }
    put(info, 48, tail_.get());
    put(info, 56, head_.get());
    put(info, 64, fifo_kind_ == Fifo::kDirect ? 4 : 0);
    put(info, 72, simple_step_);
    put(info, 96, has_fifo() ? fifo_.data() : nullptr);
    put(info, 104, step);
  }

 private:
  static constexpr size_t kSlotBytes = 24;

  char* slot_of(uint64_t step) { return fifo_.data() + step % kDeviceSteps * kSlotBytes; }

  StepBytes bytes_;
  uint32_t simple_step_;
  Fifo fifo_kind_;
  std::array<std::vector<uint64_t>, 3> buffers_;
  // Each in memory of its own, so that a sanitizer sees writes outside it.
  std::unique_ptr<uint64_t> tail_ = std::make_unique<uint64_t>(0);
  std::unique_ptr<uint64_t> head_ = std::make_unique<uint64_t>(0);
  std::vector<char> fifo_ = std::vector<char>(kDeviceSteps * kSlotBytes);
};

// ncclKernelComm of a rank, and all that it points to.
class DeviceCommunicator {
 public:
  DeviceCommunicator(const nccl::cpu::Layout& layout, int rank, int ranks, int channels,
                     const StepBytes& bytes = {})
      : layout_(layout),
        memory_(layout.comm.channel_array + static_cast<size_t>(channels) * layout.channel.bytes),
        started_(static_cast<size_t>(channels) * 2 * kRecords),
        completed_(started_.size()),
        consumed_(static_cast<size_t>(channels)) {
    put(address(), 0, rank);
    put(address(), 4, ranks);
    put(address(), 16, kSteps * bytes.ll);
    put(address(), 20, kSteps * bytes.ll128);
    put(address(), 24, kSteps * bytes.simple);
    put(address(), 28, bytes.p2p);
    put(address(), layout.comm.abort_flag, abort_.get());
    if (layout.comm.work_started != nccl::cpu::kAbsent) {
      put(address(), layout.comm.work_started, started_.data());
      put(address(), layout.comm.work_completed, completed_.data());
    }
    if (layout.comm.work_consumed != nccl::cpu::kAbsent) {
      put(address(), layout.comm.work_consumed, consumed_.data());
    }
    for (int channel = 0; channel < channels; ++channel) {
      Peers& peers = peers_.emplace_back(static_cast<size_t>(ranks));
      put(this->channel(channel), 0, peers.pointers.data());
      set_tree(channel, -1, {-1, -1, -1});
    }
  }
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  char* address() { return memory_.data(); }
  char* channel(int number) {
    return address() + layout_.comm.channel_array +
           static_cast<size_t>(number) * layout_.channel.bytes;
  }
  int rank() { return get<int>(address(), 0); }

  // The ranks as they follow each other around the ring.
  void set_ring(int number, const std::vector<int>& order) {
    const size_t ranks = order.size();
    size_t own = 0;
    size_t zero = 0;
    for (size_t i = 0; i < ranks; ++i) {
      if (order[i] == rank()) own = i;
      if (order[i] == 0) zero = i;
    }
    std::vector<int>& from_here = rings_.emplace_back();
    for (size_t i = 0; i < ranks; ++i) from_here.push_back(order[(own + i) % ranks]);
    put(channel(number), 8, from_here.back());
    put(channel(number), 12, from_here[1 % ranks]);
    put(channel(number), 16, from_here.data());
    put(channel(number), 8 + layout_.channel.ring_index,
        static_cast<int>((own + ranks - zero) % ranks));
  }
  void set_tree(int number, int up, const std::array<int, 3>& down) {
    put(channel(number), layout_.channel.tree + 4, up);
    put(channel(number), layout_.channel.tree + 8, down);
  }

  // Connection `index` to a peer, or from it.
  char* info(int number, int peer, bool sends, int index) {
    constexpr size_t kInfoBytes = 152;
    char* const all = peers_[static_cast<size_t>(number)].pointers[static_cast<size_t>(peer)];
    return all + kInfoBytes * static_cast<size_t>(index + (sends ? 0 : 2));
  }
  uint64_t step(int number, int peer, bool sends, int index = 0) {
    return get<uint64_t>(info(number, peer, sends, index), 104);
  }

  void abort() { __atomic_store_n(abort_.get(), 1U, __ATOMIC_RELEASE); }

  // The profiler's records of a channel: number and time, of works that began or ended.
  struct Record {
    uint64_t number, time;
  };
  Record record(int number, bool began, uint64_t work) const {
    const auto& all = began ? started_ : completed_;
    const size_t place = 2 * (static_cast<size_t>(number) * kRecords + work % kRecords);
    return {all[place], all[place + 1]};
  }
  uint64_t work_counter(int number) {
    return get<uint64_t>(channel(number), layout_.channel.work_counter);
  }
  uint32_t consumed(int number) const { return consumed_[static_cast<size_t>(number)]; }

 private:
  static constexpr uint32_t kSteps = kDeviceSteps;
  static constexpr size_t kRecords = 64;
  static constexpr size_t kPeerBytes = 608;

  struct Peers {
    explicit Peers(size_t ranks) : memory(ranks * kPeerBytes) {
      for (size_t i = 0; i < ranks; ++i) pointers.push_back(memory.data() + i * kPeerBytes);
    }
    std::vector<char> memory;
    std::vector<char*> pointers;
  };

  const nccl::cpu::Layout& layout_;
  std::vector<char> memory_;
  std::vector<uint64_t> started_;
  std::vector<uint64_t> completed_;
  std::vector<uint32_t> consumed_;
  std::unique_ptr<uint32_t> abort_ = std::make_unique<uint32_t>(0);
  std::deque<Peers> peers_;
  std::deque<std::vector<int>> rings_;
};

// Joins two ranks: what one sends is what the other receives.
inline void join(DeviceLink& link, DeviceCommunicator& sender, DeviceCommunicator& receiver,
                 int channel, int index = 0, uint64_t step = 0) {
  link.set_head(step);
  link.set_tail(step);
  link.write_info(sender.info(channel, receiver.rank(), true, index), step);
  link.write_info(receiver.info(channel, sender.rank(), false, index), step);
}

}  // namespace pacecar::test
