// Messages of frames between two processes of one host, in memory that both map. The sender makes
// the memory; its greeting carries the descriptor (endpoint_bootstrap.h). Messages need no system
// calls: a receiver announces that it sleeps, and is woken through the NIC.
//
// The other process is not trusted: the memory's size is sealed, so that access cannot fault, and
// what is read of its state is checked. It may change a message while that is read; FrameReader
// copies each frame before it checks it.
//
// Thread rule: one thread at a time, in either process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar::fabric {

// Where the frames of one peer come from: messages of frames, in the order of sending.
class FrameSource {
 public:
  FrameSource() = default;
  virtual ~FrameSource() = default;
  FrameSource(const FrameSource&) = delete;
  FrameSource& operator=(const FrameSource&) = delete;

  // The next message; it is valid until done() is called. Empty: none yet. Errors: kPeer; the next
  // call returns the same.
  virtual Result<std::span<const uint8_t>> next() = 0;
  // Errors: as irecv.
  virtual Result<void> done() = 0;
  // Polls the NIC. False: it was not polled, because a message is ready, or there is none.
  virtual bool turn() { return false; }
  // The caller is going to sleep: what arrives wakes it. False: a message is there.
  virtual bool rest() { return true; }
};

struct SharedRing {
  // Message n is described by entry n % kMaxMessages: the low half of n + 1, the slot, the bytes.
  alignas(64) std::array<std::atomic<uint64_t>, kMaxMessages> entries;
  alignas(64) std::atomic<uint64_t> consumed;  // messages that the receiver has read
  alignas(64) std::atomic<bool> resting;       // the receiver sleeps
  alignas(4096) std::array<std::array<uint8_t, kMessageBytes>, kMaxMessages> slots;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && kMessageBytes < 1 << 24);

struct UnmapRing {
  void operator()(SharedRing* ring) const;
};
using MappedRing = std::unique_ptr<SharedRing, UnmapRing>;

class SharedSender {
 public:
  // nullptr: the kernel does not allow it.
  static std::unique_ptr<SharedSender> make();

  // To be handed to the peer; null after close_descriptor().
  const std::shared_ptr<const FileDescriptor>& descriptor() const { return memory_; }
  void close_descriptor() { memory_.reset(); }

  uint8_t* slot(uint32_t slot) const { return ring_->slots[slot].data(); }
  // Requires that fewer than kMaxMessages are not consumed.
  void post(uint32_t slot, size_t bytes);
  uint64_t posted() const { return posted_; }
  // Errors: kPeer.
  Result<uint64_t> consumed() const;
  // Whether the receiver sleeps although there are messages.
  bool must_wake_receiver() const {
    return ring_->resting.load(std::memory_order_relaxed) &&
           ring_->consumed.load(std::memory_order_relaxed) != posted_;
  }
  void receiver_is_woken() { ring_->resting.store(false, std::memory_order_relaxed); }

 private:
  SharedSender(FileDescriptor memory, MappedRing ring)
      : memory_(std::make_shared<FileDescriptor>(std::move(memory))), ring_(std::move(ring)) {}

  std::shared_ptr<const FileDescriptor> memory_;
  MappedRing ring_;
  uint64_t posted_ = 0;
};

class SharedReceiver final : public FrameSource {
 public:
  // nullptr: it is not such memory, or it cannot be mapped.
  static std::unique_ptr<SharedReceiver> map(const FileDescriptor& memory);

  Result<std::span<const uint8_t>> next() override;
  Result<void> done() override;
  bool rest() override;

 private:
  explicit SharedReceiver(MappedRing ring) : ring_(std::move(ring)) {}
  Result<std::span<const uint8_t>> peek() const;

  MappedRing ring_;
  uint64_t consumed_ = 0;
  bool rests_ = false;
};

}  // namespace pacecar::fabric
