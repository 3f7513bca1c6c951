// Within a host: shared-memory frames, reads of a peer's memory. Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/pieces.h"
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

  // The next message, valid until done(). Empty: none yet. Errors: kPeer, again at the next call.
  virtual Result<std::span<const uint8_t>> next() = 0;
  virtual Result<void> done() = 0;  // Errors: as irecv.
  // Polls the NIC. False: it was not polled, because a message is ready, or there is none.
  virtual bool turn() { return false; }
  // The caller is going to sleep: a message will wake it. False: a message is there.
  virtual bool rest() { return true; }
};

// Messages of frames in memory that both processes map. The sender makes the memory; its greeting
// carries the descriptor (endpoint_bootstrap.h). Messages need no system calls: a receiver
// announces that it sleeps, and is woken through the NIC. The other process is not trusted: the
// memory's size is sealed, so that access cannot fault, and its state is checked when it is read.
// It may change a message while that is read; FrameReader copies each frame before it checks it.
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
  static std::unique_ptr<SharedSender> make();  // nullptr: the kernel does not allow it.

  // To be handed to the peer; null after close_descriptor().
  const std::shared_ptr<const FileDescriptor>& descriptor() const { return memory_; }
  void close_descriptor() { memory_.reset(); }

  uint8_t* slot(uint32_t slot) const { return ring_->slots[slot].data(); }
  // Requires that fewer than kMaxMessages are not consumed.
  void post(uint32_t slot, size_t bytes);
  uint64_t posted() const { return posted_; }
  Result<uint64_t> consumed() const;  // Errors: kPeer.
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

// A word of the peer's process that keeps this value while the bytes that it guards are valid.
struct Guard {
  uint64_t address = 0;
  uint64_t value = 0;
};

// The memory of a peer's process, read without a NIC (cross-memory attach), and never written. The
// kernel reports which process sent the greeting, which has the address of its token there. The
// token is read after the bytes: if it has changed, the peer has ended or has failed this endpoint,
// and they are not valid. A memory region also has a guard, which changes when it is closed.
class PeerMemory {
 public:
  struct Part {  // less than 2 GiB: what one system call reads
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // nullopt: the kernel forbids it (ptrace_scope, seccomp), or no such token is there.
  static std::optional<PeerMemory> open(pid_t process, uint64_t token_address, const Token& token);

  // Reads a part of the segments into the same part of the pieces, as far as there is room. False:
  // not all could be read (a device's memory), or it is not valid; the content is undefined.
  bool read(std::span<const RemoteSegment> from, std::span<const Piece> to, Part part,
            const std::optional<Guard>& guard = std::nullopt) const;

 private:
  PeerMemory(pid_t pid, uint64_t token_address, const Token& token)
      : pid_(pid), token_address_(token_address), token_(token) {}
  bool read_run(uint64_t from, Piece to, const Guard& guard) const;
  Guard token_guard() const { return {token_address_, token_[0]}; }

  pid_t pid_;
  uint64_t token_address_;
  Token token_;
};

}  // namespace pacecar::fabric
