// The protocol between two endpoints: frames. Small ones share one Pacecar message. They have the
// byte order of the host, which must be that of both ends. A received frame is checked before use.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace pacecar::fabric {

enum class FrameKind : uint8_t {
  kHello = 1,    // the first frame of a connection; `tag`, `data`: the token of the greeting
  kMessage,      // an eager message: its bytes follow
  kOffer,        // rendezvous: a message of `length` bytes, sent after a clear-to-send; if kDirect
                 // is set, the segments to read it from follow
  kWrite,        // an eager write to the memory with key `tag`: its bytes follow
  kWriteOffer,   // rendezvous: as kOffer, for a write of `length` bytes
  kRead,         // a read request; a large one is followed by the segments to put into
  kAtomic,       // an atomic request: its operands follow
  kClearToSend,  // reply to an offer: the segments to put into follow, `length` bytes in all
  kPlaced,       // all puts after a clear-to-send are done; `id`: the receiver's operation
  kDone,         // reply to request `id`; `data`: a Status; the bytes read follow or, if the
                 // request was kDirect, the segments to read them from while the word at
                 // `address` is `tag` (no segments: ask without kDirect)
  kWake,         // nothing: to a receiver that sleeps, whose frames are in shared memory
  kBye,          // the last frame: the endpoint is closed
};

// Bits of Frame::flags.
inline constexpr uint8_t kTagged = 1;
inline constexpr uint8_t kHasData = 2;
inline constexpr uint8_t kWantsDone = 4;  // of a message: the sender waits for a kDone
inline constexpr uint8_t kFetches = 8;    // of an atomic: the old values are returned
inline constexpr uint8_t kCompares = 16;  // of an atomic: comparands follow the operands
// In an offer: the receiver may read the bytes from the sender's memory (same_host.h), or reply
// with a clear-to-send. In a read: its sender can read the receiver's memory, given the segments.
// In a kHello: its sender can read the receiver's memory.
inline constexpr uint8_t kDirect = 32;
inline constexpr uint8_t kRepeated = 64;  // of a read: it was replied to, and counted, before

enum class Status : uint64_t {
  kOk = 0,
  kNoKey,        // no registered memory has this key
  kNoAccess,     // outside of the region, or the access is not allowed
  kUnsupported,  // the operation or the datatype
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  uint8_t flags = 0;
  uint8_t operation = 0;  // of an atomic
  uint8_t datatype = 0;   // of an atomic
  uint32_t payload = 0;   // bytes that follow
  uint64_t tag = 0;       // of a tagged message; the key of remote memory
  uint64_t data = 0;      // remote CQ data; a Status
  uint64_t length = 0;    // bytes of the whole operation
  uint64_t id = 0;        // of the operation, at the side that initiated it
  uint64_t address = 0;   // in remote memory; kClearToSend: the receiver's operation
};
static_assert(sizeof(Frame) == 48 && std::is_trivially_copyable_v<Frame>);

// As in the greeting: by it a peer identifies its connections and its process.
using Token = std::array<uint64_t, 2>;

// Sender's memory into which the receiver may put: remote address, length, rkey. In a kDirect offer
// or read reply: memory to read, by its address in the sender's process, without a key.
struct RemoteSegment {
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t key = 0;
};
static_assert(sizeof(RemoteSegment) == 24 && std::is_trivially_copyable_v<RemoteSegment>);

inline constexpr size_t kMaxSegments = 4;
// Largest eager payload: copying it twice takes as long as the round trip of a rendezvous.
inline constexpr size_t kEagerBytes = 524288;
// Largest eager payload where the receiver can read the sender's memory: measured.
inline constexpr size_t kDirectEagerBytes = 131072;
// Most bytes of operands, of comparands or of results in one atomic.
inline constexpr size_t kAtomicBytes = 8192;
inline constexpr size_t kMessageBytes = kEagerBytes + 2 * sizeof(Frame);
// Most such messages outstanding between two endpoints, in each direction. Small frames share them.
inline constexpr uint32_t kMaxMessages = 8;

// Bytes of a frame in a message: each frame begins at a multiple of 8 bytes.
constexpr size_t frame_bytes(size_t payload) { return sizeof(Frame) + (payload + 7) / 8 * 8; }
static_assert(frame_bytes(kEagerBytes) <= kMessageBytes);

struct FrameView {
  Frame frame;
  std::span<const uint8_t> payload;
};

class FrameReader {
 public:
  explicit FrameReader(std::span<const uint8_t> message) : rest_(message) {}

  // nullopt: the end of the message, or no valid frame; whole() distinguishes the two.
  std::optional<FrameView> next() {
    FrameView view;
    if (rest_.size() < sizeof(Frame)) return std::nullopt;
    std::memcpy(&view.frame, rest_.data(), sizeof(Frame));
    const bool known = view.frame.kind >= FrameKind::kHello && view.frame.kind <= FrameKind::kBye;
    if (!known || view.frame.payload > rest_.size() - sizeof(Frame)) return std::nullopt;
    view.payload = rest_.subspan(sizeof(Frame), view.frame.payload);
    const size_t bytes = frame_bytes(view.frame.payload);
    rest_ = bytes < rest_.size() ? rest_.subspan(bytes) : std::span<const uint8_t>();
    return view;
  }
  // Whether all bytes have been read as frames.
  bool whole() const { return rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace pacecar::fabric
