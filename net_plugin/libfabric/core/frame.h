// What two endpoints say to each other: frames, several in one Pacecar message where they are
// small. Written as they lie in memory: both ends are of one byte order, as messages require. What
// is read was written by the peer: it is checked before it is used.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace pacecar::fabric {

enum class FrameKind : uint8_t {
  kHello = 1,   // the first one: tag, data: the token that the greeting gave
  kMessage,     // a whole message
  kOffer,       // a message of `length` bytes that waits for a place
  kWrite,       // bytes for memory that is registered with key `tag`
  kWriteOffer,  // likewise, of `length` bytes that wait for a place
  kRead,        // asks for bytes; large ones into the places that follow
  kAtomic,      // operands that follow
  kClear,       // answers an offer: the places that follow, `length` bytes in all
  kPlaced,      // all that was cleared is in place; `id` is the clearing side's
  kDone,        // answers by the asking side's id: `data` is a Status; what was read follows
  kBye,         // nothing comes after it
};

// Bits of Frame::flags.
inline constexpr uint8_t kTagged = 1;
inline constexpr uint8_t kHasData = 2;
inline constexpr uint8_t kWantsDone = 4;  // a message whose sender waits for its delivery
inline constexpr uint8_t kFetches = 8;    // an atomic that returns what was there
inline constexpr uint8_t kCompares = 16;  // one whose operands are followed by comparands

enum class Status : uint64_t {
  kOk = 0,
  kNoKey,     // no memory has this key
  kNoAccess,  // outside of it, or not to be written or read
  kNonsense,  // operation or datatype
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  uint8_t flags = 0;
  uint8_t operation = 0;  // of an atomic
  uint8_t datatype = 0;   // likewise
  uint32_t payload = 0;   // bytes that follow
  uint64_t tag = 0;       // of a tagged message; the key of remote memory
  uint64_t data = 0;      // remote CQ data; a Status
  uint64_t length = 0;    // bytes of the whole operation
  uint64_t id = 0;        // of the operation, at the side that said it first
  uint64_t address = 0;   // in remote memory; kClear: the clearing side's id
};
static_assert(sizeof(Frame) == 48 && std::is_trivially_copyable_v<Frame>);

// Memory of the speaker's into which the other side may put.
struct PlaceFrame {
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t key = 0;
};
static_assert(sizeof(PlaceFrame) == 24 && std::is_trivially_copyable_v<PlaceFrame>);

inline constexpr size_t kMostPlaces = 4;
// What goes at once, without asking for a place: two copies of so much take as long as the
// question.
inline constexpr size_t kEagerBytes = 131072;
// Operands, comparands or results of one atomic.
inline constexpr size_t kAtomicBytes = 8192;
// One Pacecar message of frames.
inline constexpr size_t kMessageBytes = kEagerBytes + 2 * sizeof(Frame);

// In a message: the next frame begins at a multiple of 8 bytes.
constexpr size_t frame_bytes(size_t payload) { return sizeof(Frame) + (payload + 7) / 8 * 8; }
static_assert(frame_bytes(kEagerBytes) <= kMessageBytes);

struct FrameView {
  Frame frame;
  std::span<const uint8_t> payload;
};

// The frames of a message, one after the other.
class FrameReader {
 public:
  explicit FrameReader(std::span<const uint8_t> message) : left_(message) {}

  // nullopt: there are no more, or what follows is no frame.
  std::optional<FrameView> next() {
    FrameView view;
    if (left_.size() < sizeof(Frame)) return std::nullopt;
    std::memcpy(&view.frame, left_.data(), sizeof(Frame));
    const bool known = view.frame.kind >= FrameKind::kHello && view.frame.kind <= FrameKind::kBye;
    if (!known || view.frame.payload > left_.size() - sizeof(Frame)) return std::nullopt;
    view.payload = left_.subspan(sizeof(Frame), view.frame.payload);
    const size_t bytes = frame_bytes(view.frame.payload);
    left_ = bytes < left_.size() ? left_.subspan(bytes) : std::span<const uint8_t>();
    return view;
  }
  // Nothing is left that could not be read.
  bool whole() const { return left_.empty(); }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace pacecar::fabric
