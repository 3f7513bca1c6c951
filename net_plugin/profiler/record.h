// What NCCL reports to its profiler: events in the form common to all table versions, and the
// record of one communicator. Units: ns of the host's monotonic clock, bytes, elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace pacecar::profiler {

enum class EventKind : uint8_t {
  kNone,
  kCollective,
  kPointToPoint,
  kProxyOp,    // one channel's part of a collective, send or receive, to or from one peer
  kProxyStep,  // one message of a proxy operation
};

// ncclFunc_t in its order, then operations that have only a name.
inline constexpr std::array<std::string_view, 11> kOperations = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
    "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
inline constexpr uint8_t kSend = 6;  // index of "Send"
static_assert(kOperations[kSend] == "Send");
// ncclDataType_t, in its order.
inline constexpr std::array<std::string_view, 12> kDatatypes = {
    "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
inline constexpr uint8_t kUnknownName = 255;

// What a step waits for, one after the other.
enum class Wait : uint8_t {
  kNothing,
  kGpu,   // for the GPU to provide the data, or to consume it
  kPeer,  // for room at the receiver
  kNetwork,
  kFlush,
};
inline constexpr size_t kWaits = 5;
using WaitTimes = std::array<uint64_t, kWaits>;  // by Wait; the first is 0

// The data of an event that are known when it begins.
struct Description {
  EventKind kind = EventKind::kNone;
  uint8_t operation = kUnknownName;  // index of kOperations
  uint8_t datatype = kUnknownName;   // index of kDatatypes
  uint8_t channel = 0;
  bool sending : 1 = false;
  bool detailed : 1 = true;  // of an operation: its messages are recorded
  int32_t peer : 30 = -1;    // rank; of a collective its root
  // A collective's sequence number, a proxy operation's number of steps, or a step's index.
  uint64_t number = 0;
  uint64_t amount = 0;  // elements, or bytes
};

// An event as it is read out of a record.
struct Event {
  Description what;
  uint64_t id = 0;
  uint64_t parent = 0;  // id; 0: none
  uint64_t start_ns = 0;
  uint64_t stop_ns = 0;  // 0: not yet; of a collective: of the last of its parts so far
  // When the host was done with the collective, or when the data of the step left for the network
  // or came from the network. 0: not yet.
  uint64_t moment_ns = 0;
  uint64_t first_ns = 0;  // The time from the start of a proxy operation to its first message.
  uint64_t bytes = 0;     // that its parts have moved
  WaitTimes waits{};      // of its parts
};

// Sums of a communicator since it began: of events, bytes and nanoseconds.
enum Sum : size_t {
  kCollectives,
  kPointToPoints,
  kBytesSent,
  kBytesReceived,
  kBusyNs,  // of all channels' parts whose messages are recorded, as bytes and waits
  kGpuNs,   // waits, in Wait's order
  kPeerNs,
  kNetworkNs,
  kFlushNs,
  kSums,
};
using Totals = std::array<uint64_t, kSums>;

// A communicator's identity.
struct Identity {
  uint64_t communicator = 0;
  int32_t rank = -1;
  int32_t ranks = 0;
  int32_t nodes = 0;
};

// The record of one communicator: its newest events, in rings of fixed size, and sums of all.
// NCCL's threads write it while others read it, under one lock: a writer waits for a few
// instructions of another writer, or for the copy of a reader, some 0.1 ms. Nothing is allocated.
// An event stays in its ring until enough newer ones have begun; later updates of it are dropped.
// The cost is bounded: of operations beyond kMessageRate messages a second only start and end are
// recorded. Time is an argument. The many steps have a ring of their own, so that they do not
// overwrite collectives and proxy operations.
class Record {
 public:
  static constexpr size_t kOperations = 2048;
  static constexpr size_t kSteps = 4096;
  // Messages per second, and in one burst. With eight ranks on two processors one takes about 1 us,
  // so all take 0.05% of a core.
  static constexpr uint64_t kMessageRate = 500;

  explicit Record(const Identity& identity = {}) : identity_(identity) {}

  // An id; 0: it is not recorded. `parent` is one, or 0.
  uint64_t start(const Description& given, uint64_t parent, uint64_t now_ns);
  // False for a message of an operation whose messages are not recorded.
  static bool records(const Description& what, uint64_t parent) {
    return what.kind != EventKind::kProxyStep || (parent & kBrief) == 0;
  }
  // Ends a step or operation; of a collective, the host's part.
  void stop(uint64_t id, uint64_t now_ns);
  // From now on the step waits for this. `bytes` that it moves; 0: not known yet.
  void wait(uint64_t id, Wait wait, uint64_t bytes, uint64_t now_ns);

  const Identity& identity() const { return identity_; }
  Totals totals() const;
  // The oldest first, as they began.
  std::vector<Event> operations() const { return read(operations_); }
  std::vector<Event> steps() const { return read(steps_); }

 private:
  // Bits of an id, below the place in the ring.
  static constexpr uint64_t kStep = 1;   // in the ring of steps
  static constexpr uint64_t kBrief = 2;  // Description::detailed is false
  static constexpr int kPlaceShift = 2;

  struct Slot : Event {
    Wait waiting = Wait::kNothing;
    uint64_t waiting_since_ns = 0;
  };
  struct Ring {
    explicit Ring(size_t size) : slots(size) {}

    std::vector<Slot> slots;
    uint64_t begun = 0;
  };

  static void enter(Slot& slot, Wait wait, uint64_t now_ns);
  static void add_part(const Event& part, Event& whole);
  std::vector<Event> read(const Ring& ring) const;
  Slot* find(uint64_t id);  // nullptr: overwritten
  bool may_detail(uint64_t messages, uint64_t now_ns);
  void stop_step(Slot& step, uint64_t now_ns);
  void stop_operation(Slot& operation, uint64_t now_ns);

  const Identity identity_;
  mutable std::mutex mutex_;
  Ring operations_{kOperations};
  Ring steps_{kSteps};
  Totals totals_{};
  uint64_t allowed_until_ = 0;  // until when the recorded messages use up kMessageRate
};

}  // namespace pacecar::profiler
