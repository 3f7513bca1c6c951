// Operations, as requested and while outstanding. Thread rule: with the domain's lock held.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "net_plugin/libfabric/endpoint/local.h"
#include "net_plugin/libfabric/link/same_host.h"

namespace pacecar::fabric {

struct Peer;

struct PendingCompletion;

// State of a buffer for several messages (FI_MULTI_RECV). Its last completion returns it.
struct SharedBuffer {
  uint32_t incomplete = 0;                  // messages in it without a completion yet
  bool used_up = false;                     // no further message is matched with it
  std::unique_ptr<PendingCompletion> last;  // of a receive that has failed, after all messages
};

struct Receive {
  void* context = nullptr;
  uint64_t flags = 0;
  Local local;
  std::shared_ptr<SharedBuffer> shared;  // for FI_MULTI_RECV
};

// A receive that the application posts, or a peek.
struct ReceiveRequest {
  bool tagged = false;
  uint64_t tag = 0;
  uint64_t ignore = 0;  // bits of the tag that are not compared
  fi_addr_t from = FI_ADDR_UNSPEC;
  Receive receive;
};

// A send, write, read or atomic that the application starts.
struct OperationRequest {
  // Whether the call copies the bytes.
  bool injects() const {
    return frame.kind != FrameKind::kRead && (inject || (flags & FI_INJECT) != 0);
  }

  Frame frame;          // without payload, length and id
  bool inject = false;  // no completion; the buffer may be reused at once
  Local local;
  fi_addr_t to = FI_ADDR_UNSPEC;
  void* context = nullptr;
  uint64_t flags = 0;
  Local comparands;  // of an atomic
  Local results;     // of an atomic
};

// The completion of an operation, reported when it has succeeded or failed.
struct PendingCompletion {
  Completion completion;
  bool queued_on_success = false;  // a failure is always queued
  bool counted = true;
  std::shared_ptr<SharedBuffer> shared;  // of a message that is received
};

struct Operation {
  enum class Kind : uint8_t {
    kOffer,     // a rendezvous send
    kDelivery,  // an eager send that waits for kDone
    kWrite,
    kRead,
    kAtomic,
    kReceive,     // a receive of an offered message, until all its bytes are there
    kServeWrite,  // as target: a peer's offered write, until all its bytes are there
    kServeRead,   // as target: a peer's large read, which we serve by puts
  };
  Kind kind = Kind::kOffer;
  // Stores the peer's segments. False: they are not of `bytes` bytes.
  bool take_segments(std::span<const uint8_t> payload, uint64_t bytes);
  // Its segments, as the payload of a frame.
  std::span<const uint8_t> segment_bytes() const {
    return {reinterpret_cast<const uint8_t*>(segments.data()),
            segment_count * sizeof(RemoteSegment)};
  }
  // Copies received bytes from the bounce buffer to GPU memory; a second call copies nothing.
  Result<void> deliver();
  bool serves() const { return kind == Kind::kServeWrite || kind == Kind::kServeRead; }
  bool initiated() const { return !serves() && kind != Kind::kReceive; }
  uint64_t number = 0;
  Peer* peer = nullptr;
  PendingCompletion pending;
  Local local;
  std::array<const Memory*, kMaxSegments> registered{};  // for this operation only
  size_t registered_nic = 0;
  uint64_t length = 0;
  uint32_t outstanding_puts = 0;
  bool offered = false;         // by our kOffer or kWriteOffer
  bool reads_directly = false;  // from the peer's memory, in parts
  uint64_t bytes_read = 0;      // so far
  std::optional<Guard> guard;   // of these bytes
  bool direct_failed = false;   // of a read: it goes through the NIC now
  bool cts_received = false;
  bool puts_issued = false;  // all puts were given to the PutBox, or the peer has read the bytes
  bool awaits_done = false;  // until the peer's kDone
  uint64_t remote_id = 0;    // the peer's number of this operation
  std::array<RemoteSegment, kMaxSegments> segments{};
  size_t segment_count = 0;
  std::unique_ptr<Bounce> bounce;  // in place of GPU memory: `local` is this buffer
  Frame request;                   // of kRead, kReceive and kServeWrite
  MemoryRegion* target = nullptr;  // of kServeWrite; null once it is closed
};

}  // namespace pacecar::fabric
