// Nic: an RDMA NIC as a program sees it. Implemented by the software RDMA NIC (softnic), over
// libibverbs (verbs) and over libfabric (ofi); used by the message layer, which is the same over
// all of them.
//
// Thread rule: one thread at a time. No call blocks. Time is an argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/send_grid.h"
#include "transport/base/units.h"
#include "transport/nic/caps.h"
#include "transport/wire/packet.h"

namespace pacecar {

// A queue pair of this NIC. An id is not reused while late packets could still name the old queue
// pair.
using QueuePairId = uint32_t;
// A (source NIC, destination NIC) pair, numbered by the user of the NIC: 0 .. caps().flows-1.
// Its queue pairs share one pacer and one window.
using FlowId = uint32_t;
// A protection domain, below 2^24: a queue pair's peer reaches memory of the queue pair's domain.
// kNoDomain: of a queue pair, its peer reaches all memory; of memory, all peers reach it.
using DomainId = uint32_t;
inline constexpr DomainId kNoDomain = 0;

// What may be done with registered memory. The owner may always read it. The owner may also write
// it (by receives and reads) where peers have any right at all.
enum class Access : uint8_t {
  kLocalRead = 0,
  kRemoteWrite = 1,
  kRemoteRead = 2,
  kRemoteAll = 3,  // except atomics
  kRemoteAtomic = 4,
  kLocalWrite = 8,  // where peers have no right
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

constexpr bool allows(Access granted, Access wanted) {
  return (static_cast<uint8_t>(granted) & static_cast<uint8_t>(wanted)) ==
         static_cast<uint8_t>(wanted);
}

// Registered memory. Its key and its remote address are given only to a peer that may write.
struct MemoryRegion {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint32_t key = 0;  // local and remote key in one
  // The remote address of its first byte: not the local one, where the NIC can choose. The low bits
  // are those of `address` (kRemoteAlignment).
  uint64_t remote_address = 0;

  // The remote address of one of its bytes.
  uint64_t remote(const uint8_t* byte) const {
    return remote_address + static_cast<uint64_t>(byte - address);
  }
};

// Remote addresses equal local ones modulo this, so that alignment up to a huge page is the same
// for peers.
inline constexpr uint64_t kRemoteAlignment = uint64_t{1} << 21;

// Memory behind a dma-buf, such as a GPU's: `length` bytes from `offset` on, addressed by peers
// from `address` on.
struct DmaBufMemory {
  static constexpr uint64_t kUnknown = 0;
  int fd = -1;
  uint64_t offset = 0;
  uint64_t address = 0;
  size_t length = 0;
  uint64_t allocation = kUnknown;  // the owner's number of the allocation that it lies in, never
                                   // reused
};

// What a peer needs to reach a queue pair, as bytes for the bootstrap to carry. Opaque above the
// NIC.
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

// A shared receive queue: several queue pairs take receive requests from it.
using ReceiveQueueId = uint32_t;

// The service of a queue pair, and who connects it.
enum class Service : uint8_t {
  kConnected,  // connect_queue_pair: the NIC maintains the connection
  // connect_standard: exactly one connection of standard RC, which its user brings up; the queue
  // pair ends with it. connect_standard sets the flow. Only where caps().standard.
  kStandard,
  kDatagram,  // open_datagrams: UD. Only where caps().standard.
};

struct QueuePairConfig {
  FlowId flow = 0;
  TrafficClass traffic_class = TrafficClass::kData;
  // Data queue pairs obey the flow's limits; control queue pairs are neither paced nor windowed.
  bool paced = true;
  uint32_t work_requests = 64;  // most posted, not yet completed work requests
  bool posts = true;            // false: nothing will be posted; memory for it may be omitted
  // Most posted, not yet consumed receive requests. 0: the queue pair takes no sends, and writes
  // with immediate need no receive request. Otherwise each send and each write with immediate
  // consumes one, in order; while there is none the peer retries for a while. Only where
  // caps().sends.
  uint32_t receives = 0;
  Service service = Service::kConnected;
  std::optional<ReceiveQueueId> receive_queue = std::nullopt;  // instead of its own; not kConnected
  DomainId domain = kNoDomain;                                 // of kStandard
  // Of kDatagram: the one that peers address as queue pair 1 (general services). One of a NIC.
  bool general_services = false;
};

// The receiving half of a connection of standard RC that its user brings up (InfiniBand
// Architecture Specification vol. 1, 11.2.5.2): the peer and its attributes.
struct StandardPeer {
  FlowId flow = 0;  // whose limits apply to what is sent
  std::array<uint8_t, 16> gid{};
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;  // of what it sends
  Bytes mtu = 0;           // path MTU, of both ends
  uint8_t read_depth = 1;  // reads and atomics of the peer at once; 0 counts as 1
  // What it may do to memory that allows it.
  Access access = Access::kRemoteAll | Access::kRemoteAtomic;
  uint8_t rnr_delay = 0;  // RNR timer code (table 45): how long the peer waits before a retry
  // False: UC. What is sent is paced, but not acknowledged: done when the packet I/O has it. A
  // message that does not arrive whole is dropped.
  bool reliable = true;
};

// A part of registered memory that peers access by another key (memory window).
struct MemoryWindow {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint64_t remote_address = 0;
  uint32_t key = 0;  // chosen by the user
  Access access = Access::kLocalRead;
  // The only one whose peer may use the key, and invalidate it.
  std::optional<QueuePairId> queue_pair;
  DomainId domain = kNoDomain;
};

// Most outstanding reads and atomics, each way, of such a connection: as many as rdma_rxe takes.
inline constexpr uint8_t kMostReads = 128;

// The sending half.
struct StandardSending {
  uint32_t first_psn = 0;
  uint8_t read_depth = 1;    // outstanding reads and atomics; 0 counts as 1
  Duration silence_limit;    // a peer without progress for so long is dead
  Duration not_ready_limit;  // likewise, a peer without a receive request
};

enum class Opcode : uint8_t {
  kWrite,         // places bytes in the peer's memory; no completion there
  kWriteWithImm,  // likewise, and then completes at the peer with `immediate`
  // Only where caps().sends and caps().reads, and only if the connection to the peer has them:
  // otherwise post() takes none.
  kSend,  // into the memory of the peer's oldest receive request; caps().sends
  kRead,  // from the peer's memory into ours, which must be writable; caps().reads
  // The rest on queue pairs of Service::kStandard only.
  kSendWithImm,
  // As kSend, and then `immediate`, the key of a memory window of the peer's queue pair, is
  // invalid.
  kSendInvalidate,
  // On 8 aligned bytes of the peer; the value before goes into our memory.
  kCompareSwap,
  kFetchAdd,
  kNothing,  // completes in its turn
};

// One operation on `length` bytes (0 is valid). The memory must stay registered and unchanged until
// the completion. Sends and reads only on queue pairs without pacing, or of Service::kStandard.
struct WorkRequest {
  uint64_t id = 0;  // comes back in the completion
  const uint8_t* local = nullptr;
  uint64_t remote = 0;
  Bytes length = 0;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  Opcode opcode = Opcode::kWrite;
  bool signaled = true;  // false: completes without a completion unless it fails
  bool awaited = false;  // the completion is awaited: it should come soon, even if no other follows
  bool passing = false;  // may overtake others of its queue pair, and share a packet with others
  bool host = false;     // host memory, not a GPU's: the processor may read it during post()
  // On queue pairs of Service::kStandard only.
  bool solicited = false;  // Completion::solicited at the peer
  bool fenced = false;     // starts only when all earlier reads and atomics are done
  uint64_t operand = 0;    // of an atomic: the value that is swapped in or added
  uint64_t compare = 0;    // of kCompareSwap
};

// A message of UD: one packet, not acknowledged.
struct Datagram {
  WorkRequest send;  // kSend or kSendWithImm, not longer than caps().mtu
  std::array<uint8_t, 16> gid{};
  uint32_t queue_pair = 0;
  uint32_t queue_key = 0;
};

// Where the next send of the peer goes; the memory must be writable.
struct ReceiveRequest {
  uint64_t id = 0;  // comes back in the completion
  uint8_t* local = nullptr;
  Bytes length = 0;
  uint32_t local_key = 0;
};

enum class CompletionKind : uint8_t {
  kSent,          // a work request of ours: the peer's NIC has all its bytes, or a read's are here
  kReceived,      // a peer's write with immediate: its bytes and all earlier ones are placed
  kReceivedSend,  // a peer's send, or a datagram: likewise
  // The queue pair is in error; its work requests will not complete. Of a receive request that was
  // the cause, kReceiveTooShort or kReceiveGone, it has the id.
  kBroken,
};

enum class CompletionStatus : uint8_t {
  kOk,
  kRemoteAccessError,  // the peer refused: unknown remote key, out of bounds, or no right to write
  kMemoryGone,         // our memory was deregistered before it was done
  kRetryExceeded,      // the peer has not answered within the limit
  kReceiverNotReady,   // the peer has posted no receive request within the limit
  kRemoteRefused,      // the peer's NIC refused: the send is longer than the receive request
  kRemoteFailed,       // the peer's memory for a send was deregistered
  kReceiveTooShort,    // ours, for the peer's send
  kReceiveGone,        // the memory of our receive request was deregistered
  kLocalError,         // of our own NIC: see fault()
};

struct Completion {
  uint64_t work_request = 0;  // kSent; otherwise the receive request, if one was consumed
  Bytes bytes = 0;            // kReceived, kReceivedSend
  QueuePairId queue_pair = 0;
  uint32_t immediate = 0;  // kReceived; of a send, where it has one
  CompletionKind kind = CompletionKind::kSent;
  CompletionStatus status = CompletionStatus::kOk;
  bool has_immediate = false;  // a send
  bool invalidated = false;    // by a send: the window whose key is `immediate`
  bool solicited = false;      // the peer asks for an event (solicited event bit)
  uint32_t source_qp = 0;      // of a datagram; 40 bytes of GRH precede it in the receive
};

// Feedback on a flow's data since the last signal, for the congestion control. A flow that had to
// wait for its rate also signals when all that was posted has been sent. A flow on credit signals
// whenever it has sent, with `sharing`: how many of the NIC's flows, itself included, then had
// something to send and were allowed to.
struct FlowSignal {
  FlowId flow = 0;
  Duration rtt;              // of the newest packet acknowledged; 0 when there is none
  Bytes acked = 0;           // newly acknowledged bytes
  Bytes marked = 0;          // of these, marked by ECN on the way
  Bytes lost = 0;            // newly found missing
  Bytes trimmed = 0;         // newly found trimmed: a switch cut off their payload
  Duration trimmed_rtt;      // from sending the newest trimmed packet to its notice; 0: none
  uint32_t sharing = 0;      // see above; 0: not sent since the last signal
  Bytes in_flight = 0;       // after this signal
  Bytes sent = 0;            // by the flow since it began, retransmissions included
  bool rerouting = false;    // a better path is being searched
  bool timed_out = false;    // no acknowledgement for a whole timeout
  bool echo_marked = false;  // the packet that the newest acknowledgement answers was marked
  uint8_t hops = 0;          // of `telemetry`
  std::array<TelemetryHop, kMaxTelemetryHops> telemetry{};  // of that packet
};

// What has arrived on a flow since the last such report, for the allocator.
struct FlowArrival {
  FlowId flow = 0;
  Bytes bytes = 0;  // payload placed in memory, each byte once
  // The shortest time from a packet's time stamp to its arrival, by two clocks and modulo 2^32:
  // only differences within a flow are meaningful.
  uint32_t transit_ns = 0;
  uint32_t timed_bytes = 0;  // payload of that packet
};

inline constexpr Bytes kNoCredit = ~Bytes{0};

// The congestion control's decision, applied by the NIC.
struct FlowLimits {
  Rate rate;
  Instant first_send;  // phase: nothing before this time
  // The next packet leaves at first_send, even if it would otherwise have waited for longer.
  bool aligned = false;
  SendGrid grid;     // the next packet moves to the nearest instant of it; none: it stays
  Bytes window = 0;  // most bytes in flight
  Bytes burst = 0;   // payload that may leave at once; 0: caps().burst_bytes, the most
  // The most that the flow may have sent since it began, retransmissions included; a packet that
  // begins within it is sent whole. kNoCredit: no such limit.
  Bytes credit = kNoCredit;
  // A new rate applies from the next packet on; the departure of the packet that is waiting does
  // not change.
  bool from_next_packet = false;
};

class Nic {
 public:
  virtual ~Nic() = default;

  virtual const NicCaps& caps() const = 0;
  virtual const NicCounters& counters() const = 0;
  // Asks the driver, so it is not for every poll.
  virtual std::vector<HardwareCounter> hardware_counters() const { return {}; }

  // Errors: kInvalidArgument for an empty or wrapping range, kUnavailable when all caps().regions
  // are used.
  virtual Result<MemoryRegion> register_memory(void* address, size_t length, Access access) = 0;
  // Registers memory with the remote address `remote`. Only where caps().standard.
  virtual Result<MemoryRegion> register_memory_as(void* /*address*/, size_t /*length*/,
                                                  Access /*access*/, uint64_t /*remote*/,
                                                  DomainId /*domain*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC chooses remote addresses by itself");
  }
  // Only where caps().dma_buf. Errors: as above, and what the device refuses.
  virtual Result<MemoryRegion> register_dmabuf(const DmaBufMemory& /*memory*/, Access /*access*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC takes no dma-buf: use memory of the host");
  }
  // After this returns, nothing reads or writes the region any more.
  virtual void deregister_memory(const MemoryRegion& region) = 0;
  // The same in two steps: the slow part, which does not need the NIC, runs when the returned
  // object is destroyed, on any thread, before the NIC is destroyed.
  [[nodiscard]] virtual std::shared_ptr<void> retire_memory(const MemoryRegion& region) {
    deregister_memory(region);
    return nullptr;
  }

  // Whether another registration has the same key: the memory then stays registered after this one.
  virtual bool shared(const MemoryRegion& /*region*/) const { return false; }

  // Makes what peers have written into GPU memory so far visible to the GPU, by reading a byte of
  // it behind those writes. Returns the argument of flushed(); nullopt from a NIC without reads.
  // Errors: kUnavailable (too many at once), kSystem.
  virtual Result<std::optional<uint64_t>> start_flush(const MemoryRegion& /*region*/,
                                                      const uint8_t* /*data*/) {
    return std::nullopt;
  }
  // Errors: kSystem.
  virtual Result<bool> flushed(uint64_t /*flush*/) { return true; }

  // Errors: kUnavailable when all queue pairs are used.
  virtual Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) = 0;
  virtual QueuePairAddress queue_pair_address(QueuePairId id) const = 0;
  // Errors: kPeer when `remote` is not an address of this kind of NIC.
  virtual Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) = 0;
  // The address of a connected queue pair's peer, as text. Empty: unknown.
  virtual std::string peer(QueuePairId /*id*/) const { return {}; }
  virtual QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const = 0;
  // What broke a queue pair, as text: device, cause and cure. Empty: no more than the completion's
  // status.
  virtual std::string fault(QueuePairId /*id*/) const { return {}; }
  // From here on nothing from the peer is taken or acknowledged; what was taken can be polled.
  // Destroy the queue pair afterwards.
  virtual void halt_queue_pair(QueuePairId /*id*/) {}

  // --- where caps().standard; elsewhere not called ---
  // Errors: kUnavailable.
  virtual Result<ReceiveQueueId> create_receive_queue(uint32_t /*receives*/) {
    return fail(ErrorCode::kUnavailable, "the NIC has no receive queues to share");
  }
  // No queue pair may still use it.
  virtual void destroy_receive_queue(ReceiveQueueId /*id*/) {}
  virtual size_t post_shared_receives(ReceiveQueueId /*id*/,
                                      std::span<const ReceiveRequest> /*requests*/) {
    return 0;
  }
  // From here on takes what the peer sends. Errors: kInvalidArgument (unreachable GID).
  virtual Result<void> connect_standard(QueuePairId /*id*/, const StandardPeer& /*peer*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC brings up its connections by itself");
  }
  // From here on work requests may be posted.
  virtual void start_sending(QueuePairId /*id*/, const StandardSending& /*sending*/) {}
  // From here on takes datagrams with this queue key; datagrams may be posted.
  virtual void open_datagrams(QueuePairId /*id*/, uint32_t /*queue_key*/, uint32_t /*first_psn*/) {}
  // As post(). A message to an unreachable GID is lost.
  virtual size_t post_datagrams(QueuePairId /*id*/, std::span<const Datagram> /*datagrams*/) {
    return 0;
  }
  // Errors: kInvalidArgument (as for regions), kUnavailable (no room, or the key is in use).
  virtual Result<void> bind_window(const MemoryWindow& /*window*/) {
    return fail(ErrorCode::kUnavailable, "the NIC has no memory windows");
  }
  // Has no effect on an unknown key.
  virtual void unbind_window(uint32_t /*key*/) {}
  // Back to the state after creation, with the same number: work requests are dropped without
  // completions.
  virtual void reset_queue_pair(QueuePairId /*id*/) {}
  // Breaks the queue pair as a refusal does: it completes with kBroken.
  virtual void break_queue_pair(QueuePairId /*id*/) {}

  // Destroys the queue pair and all its work requests, at once and without completions.
  virtual void destroy_queue_pair(QueuePairId id) = 0;

  // Takes work requests in order and returns how many; fewer: full, try again later. The local key
  // must cover the memory: anything else is a broken invariant of ours.
  virtual size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) = 0;
  // Likewise for receive requests. None where !caps().sends.
  virtual size_t post_receives(QueuePairId /*id*/, std::span<const ReceiveRequest> /*requests*/) {
    return 0;
  }
  virtual size_t poll(std::span<Completion> completions) = 0;
  virtual size_t poll_signals(std::span<FlowSignal> signals) = 0;
  // Arrivals are reported only if `wanted`: they cost time.
  virtual void report_arrivals(bool wanted) = 0;
  virtual size_t poll_arrivals(std::span<FlowArrival> arrivals) = 0;

  virtual void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) = 0;

  // Runs the timers that are due.
  virtual void on_time(Instant now) = 0;
  // When on_time has something to do next; Instant::never(): nothing.
  virtual Instant next_deadline() const = 0;
};

}  // namespace pacecar
