// Nic: an RDMA NIC as a program sees it. Implemented by the software RDMA NIC (softnic), over
// libibverbs (verbs) and over libfabric (ofi); used by the message layer, which is the same for all
// NICs. Thread rule: see its two halves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/flow_limits.h"
#include "transport/base/flow_signal.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/nic/caps.h"
#include "transport/wire/packet.h"

namespace pacecar {

// Rights to registered memory. The owner may always read it. The owner may also write it (by
// receives and reads) if it has any other right than kLocalRead.
enum class Access : uint8_t {
  kLocalRead = 0,
  kRemoteWrite = 1,
  kRemoteRead = 2,
  kRemoteAll = 3,  // except atomics
  kRemoteAtomic = 4,
  kLocalWrite = 8,  // for memory to which peers have no right
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

constexpr bool allows(Access granted, Access wanted) {
  return (static_cast<uint8_t>(granted) & static_cast<uint8_t>(wanted)) ==
         static_cast<uint8_t>(wanted);
}

// Registered memory. Key and remote address must be given only to peers that may access it.
struct MemoryRegion {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint32_t key = 0;  // local and remote key in one
  // The remote address of the first byte. If the NIC can choose it, it is not the local one. Its
  // low bits are the low bits of `address` (kRemoteAlignment).
  uint64_t remote_address = 0;

  // The remote address of a byte of the region.
  uint64_t remote(const uint8_t* byte) const {
    return remote_address + static_cast<uint64_t>(byte - address);
  }
};

// Remote addresses equal local ones modulo this: peers see the same alignment up to a huge page.
inline constexpr uint64_t kRemoteAlignment = uint64_t{1} << 21;

// `length` bytes of a dma-buf (GPU memory) from `offset` on. Peers address it from `address` on.
struct DmaBufMemory {
  static constexpr uint64_t kUnknown = 0;
  int fd = -1;
  uint64_t offset = 0;
  uint64_t address = 0;
  size_t length = 0;
  // The owner's number of the allocation that contains the memory; never reused.
  uint64_t allocation = kUnknown;
};

// The memory that a NIC and its peers may access. Thread rule: one thread at a time, except where
// NicCaps::registers_beside allows more.
class NicMemory {
 public:
  // Errors: kInvalidArgument (empty or wrapping range), kUnavailable (all regions are used).
  virtual Result<MemoryRegion> register_memory(void* address, size_t length, Access access) = 0;
  // Needs NicCaps::dma_buf. Errors: as register_memory, and the errors of the device.
  virtual Result<MemoryRegion> register_dmabuf(const DmaBufMemory& /*memory*/, Access /*access*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC takes no dma-buf: use host memory");
  }
  // Afterwards nothing reads or writes the region. A slow step that does not need the NIC is left
  // to the returned object's destructor, run on any thread, but before the NIC is destroyed.
  virtual std::shared_ptr<void> deregister_memory(const MemoryRegion& region) = 0;
  // Whether another registration has the same key: the memory then stays registered after this one.
  virtual bool shared(const MemoryRegion& /*region*/) const { return false; }

  // Flush: makes the bytes that peers have written into GPU memory so far visible to the GPU, by a
  // read of one byte behind those writes. Returns the argument of flushed(); nullopt: the NIC has
  // no reads. Errors: kUnavailable (too many at once), kSystem.
  virtual Result<std::optional<uint64_t>> start_flush(const MemoryRegion& /*region*/,
                                                      const uint8_t* /*data*/) {
    return std::nullopt;
  }
  // Whether that flush is complete. Errors: kSystem.
  virtual Result<bool> flushed(uint64_t /*flush*/) { return true; }

 protected:
  ~NicMemory() = default;
};

// A queue pair of this NIC. An id is not reused while late packets could name the old one.
using QueuePairId = uint32_t;
// A protection domain, below 2^24: the peer of a queue pair reaches memory of the same domain. With
// kNoDomain the peer of the queue pair reaches all memory; all peers reach the memory.
using DomainId = uint32_t;
inline constexpr DomainId kNoDomain = 0;

// A queue pair's address for its peer, as bytes that the bootstrap carries. Opaque above the NIC.
struct QueuePairAddress {
  static constexpr size_t kMaxBytes = 218;
  std::array<uint8_t, kMaxBytes> bytes{};
  uint8_t size = 0;

  std::span<const uint8_t> view() const { return {bytes.data(), size}; }
};

// Memory of a connected queue pair.
struct QueuePairMemory {
  Bytes state = 0;
  Bytes queues = 0;  // in proportion to the NIC's window parameter
};

// A shared receive queue (SRQ): several queue pairs take receive requests from it.
using ReceiveQueueId = uint32_t;

// The service of a queue pair, and who connects it.
enum class Service : uint8_t {
  kConnected,  // connect_queue_pair: the NIC maintains the connection
  // Needs a StandardNic that speaks standard RC alone. connect_standard: exactly one connection of
  // standard RC, which its user brings up; the queue pair ends with it. It sets the flow.
  kStandard,
  kDatagram,  // needs such a StandardNic; open_datagrams: UD
};

struct QueuePairConfig {
  FlowId flow = 0;
  TrafficClass traffic_class = TrafficClass::kData;
  // Data queue pairs obey the flow's limits; control queue pairs are neither paced nor windowed.
  bool paced = true;
  uint32_t work_requests = 64;  // maximum of posted, not yet completed work requests
  bool posts = true;            // false: nothing will be posted, so memory for it may be omitted
  // On a StandardNic: maximum of posted, not yet consumed receive requests. 0: the queue pair takes
  // no sends, and writes with immediate need no receive request. Otherwise each send and each write
  // with immediate consumes one, in order; while there is none the peer retries for a while.
  uint32_t receives = 0;
  Service service = Service::kConnected;
  std::optional<ReceiveQueueId> receive_queue = std::nullopt;  // instead of its own; not kConnected
  DomainId domain = kNoDomain;                                 // of kStandard
  // For kDatagram: peers address it as queue pair 1 (general services). At most one of a NIC.
  bool general_services = false;
};

enum class Opcode : uint8_t {
  kWrite,         // places bytes in the peer's memory; no completion there
  kWriteWithImm,  // places bytes, and then completes at the peer with `immediate`
  // These two only on connections of standard RC; otherwise post() does not take them. kSend needs
  // a StandardNic: into the memory of the peer's oldest receive request.
  kSend,
  kRead,  // from the peer's memory into ours, which must be writable
  // The others only on queue pairs of Service::kStandard.
  kSendWithImm,
  // As kSend, and then `immediate`, the key of a window of the peer's queue pair, is invalid.
  kSendInvalidate,
  // Atomics on 8 aligned bytes of the peer; the original value is placed in our memory.
  kCompareSwap,
  kFetchAdd,
  kNothing,  // does nothing, and completes in order
};

// One operation on `length` bytes (0 is valid). Its memory stays registered and unchanged until
// completion. Sends and reads need a queue pair that is not paced, or of Service::kStandard.
struct WorkRequest {
  uint64_t id = 0;  // comes back in the completion
  const uint8_t* local = nullptr;
  uint64_t remote = 0;
  Bytes length = 0;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  Opcode opcode = Opcode::kWrite;
  bool signaled = true;  // false: no completion, unless it fails
  bool awaited = false;  // the application waits for the completion, so it should come soon
  bool passing = false;  // may overtake others of its queue pair, and share a datagram with them
  bool host = false;     // host memory, not GPU memory: the processor may read it during post()
  // On queue pairs of Service::kStandard only.
  bool solicited = false;  // Completion::solicited at the peer
  bool fenced = false;     // starts only when all earlier reads and atomics are done
  uint64_t operand = 0;    // of an atomic: the value that is swapped in or added
  uint64_t compare = 0;    // of kCompareSwap
};

// The buffer for the peer's next send; the memory must be writable.
struct ReceiveRequest {
  uint64_t id = 0;  // comes back in the completion
  uint8_t* local = nullptr;
  Bytes length = 0;
  uint32_t local_key = 0;
};

enum class CompletionKind : uint8_t {
  // A work request of ours: the peer's NIC has all its bytes; or a read: its bytes are placed here.
  kSent,
  kReceived,      // a peer's write with immediate: its bytes and all earlier ones are placed
  kReceivedSend,  // a peer's send or datagram: its bytes and all earlier ones are placed
  kBroken,        // the queue pair is in error: its work requests will not complete
};

enum class CompletionStatus : uint8_t {
  kOk,
  kRemoteAccessError,  // the peer refused: unknown remote key, out of bounds, or no right
  kMemoryGone,         // our memory was deregistered before the work request was done
  kRetryExceeded,      // the peer has not answered within the limit
  kReceiverNotReady,   // the peer has posted no receive request within the limit
  kRemoteRefused,      // the peer's NIC refused: the send is longer than the receive request
  kRemoteFailed,       // the peer's memory for a send was deregistered
  kReceiveTooShort,    // our receive request is shorter than the peer's send
  kReceiveGone,        // the memory of our receive request was deregistered
  kLocalError,         // an error of our own NIC: see fault()
};

struct Completion {
  uint64_t work_request = 0;  // kSent; otherwise the receive request, if one was consumed
  Bytes bytes = 0;            // kReceived, kReceivedSend
  QueuePairId queue_pair = 0;
  uint32_t immediate = 0;  // of kReceived, and of a send that has one
  CompletionKind kind = CompletionKind::kSent;
  CompletionStatus status = CompletionStatus::kOk;
  bool has_immediate = false;  // of a send
  bool invalidated = false;    // the send has invalidated the memory window with key `immediate`
  bool solicited = false;      // the peer requests an event (solicited event bit)
  uint32_t source_qp = 0;      // of a datagram; 40 bytes of GRH precede it in the receive
};

// The arrivals on a flow since the last such report, for the allocator.
struct FlowArrival {
  FlowId flow = 0;
  Bytes bytes = 0;  // payload placed in memory, each byte once
  // The shortest time (ns) from a packet's time stamp to its arrival. It is taken from two clocks
  // and modulo 2^32, so only differences within a flow are meaningful.
  uint32_t transit_ns = 0;
  uint32_t timed_bytes = 0;  // payload of that packet
};

// The queue pairs of a NIC, their work requests and completions; and its flows, which take limits
// and return signals. One thread at a time. No call blocks. Time is an argument.
class NicQueuePairs {
 public:
  virtual const NicCaps& caps() const = 0;
  virtual const NicCounters& counters() const = 0;
  // Asks the driver, so do not call it in every poll.
  virtual std::vector<HardwareCounter> hardware_counters() const { return {}; }

  // Errors: kUnavailable when all queue pairs are used.
  virtual Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) = 0;
  virtual QueuePairAddress queue_pair_address(QueuePairId id) const = 0;
  // Errors: kPeer when `remote` is not an address of this kind of NIC.
  virtual Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) = 0;
  // The address of a connected queue pair's peer, as text. Empty: unknown.
  virtual std::string peer(QueuePairId /*id*/) const { return {}; }
  virtual QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const = 0;
  // How long the peer has answered nothing, although it was asked. 0: it answers, or is not asked.
  virtual Duration silence(QueuePairId /*id*/, Instant /*now*/) const { return {}; }
  // What broke a queue pair: device, cause and cure. Empty: only the completion's status is known.
  virtual std::string fault(QueuePairId /*id*/) const { return {}; }
  // From here on nothing from the peer is accepted or acknowledged. Completions of messages
  // accepted before can be polled. Destroy the queue pair afterwards.
  virtual void halt_queue_pair(QueuePairId /*id*/) {}

  // Destroys the queue pair and all its work requests, at once and without completions.
  virtual void destroy_queue_pair(QueuePairId id) = 0;

  // Takes work requests in order and returns how many. Fewer than given: the queue pair is full,
  // try again later. The local key must cover the memory: this is asserted.
  virtual size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) = 0;
  virtual size_t poll(std::span<Completion> completions) = 0;
  virtual size_t poll_signals(std::span<FlowSignal> signals) = 0;
  // Arrivals are reported only if `wanted`, because reports cost time.
  virtual void report_arrivals(bool wanted) = 0;
  virtual size_t poll_arrivals(std::span<FlowArrival> arrivals) = 0;

  virtual void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) = 0;

 protected:
  ~NicQueuePairs() = default;
};

class Nic : public NicQueuePairs, public NicMemory {
 public:
  virtual ~Nic() = default;
};

}  // namespace pacecar
