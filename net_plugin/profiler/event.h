// The recorded fields of an event of NCCL's profiler, the same for all versions of the table. Pure
// values. Units: nanoseconds of the host's monotonic clock, bytes, elements.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pacecar::profiler {

enum class EventKind : uint8_t {
  kNone,
  kCollective,
  kPointToPoint,
  kProxyOp,    // one channel's part of a collective, send or receive, to or from one peer
  kProxyStep,  // one message of a proxy operation
  kKernel,     // a kernel's work on one channel
  kNetwork,    // our request for a step
};

// ncclFunc_t in its order, then operations that have only a name.
inline constexpr std::array<std::string_view, 11> kOperations = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
    "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
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

// What is known of an event when it begins. Without padding: a record stores it as words.
struct Description {
  EventKind kind = EventKind::kNone;
  uint8_t operation = kUnknownName;  // index of kOperations
  uint8_t datatype = kUnknownName;   // index of kDatatypes
  uint8_t channel = 0;
  bool sending : 1 = false;
  bool detailed : 1 = true;  // of an operation: its messages are recorded
  int32_t peer : 30 = -1;    // rank; of a collective its root
  // Of a collective: its sequence number; of a proxy operation: its steps; of a step: its index; of
  // a kernel: GPU time of its start.
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
  // Of a collective: when the host was done with it. Of a step: when its data left for the network
  // or came from it. 0: not yet.
  uint64_t moment_ns = 0;
  // Of a proxy operation: the time from its start to its first message. Of a kernel: GPU time of
  // its end.
  uint64_t first_ns = 0;
  uint64_t bytes = 0;  // that its parts have moved
  WaitTimes waits{};   // of its parts
};

// Sums of a communicator since it began.
struct Totals {
  uint64_t collectives = 0;
  uint64_t point_to_points = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t busy_ns = 0;  // of all channels' parts
  WaitTimes waits{};

  uint64_t wait(Wait for_what) const { return waits[static_cast<size_t>(for_what)]; }
};

}  // namespace pacecar::profiler
