// Nic: what an RDMA NIC does, as a program sees it. Implemented by the software RDMA NIC (softnic)
// and over libibverbs (verbs); used by the message layer, which is the same over all of them.
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

// A queue pair of this NIC. Never reused while an old one could still be named by late packets.
using QueuePairId = uint32_t;
// A (source NIC, destination NIC) pair, numbered by the user of the NIC: 0 .. caps().flows-1.
// Its queue pairs share one pacer and one window.
using FlowId = uint32_t;

// What may be done with registered memory. The owner may always read it, and also write it (by
// receives and reads of his own) where peers may do anything at all.
enum class Access : uint8_t {
  kLocalRead = 0,
  kRemoteWrite = 1,
  kRemoteRead = 2,
  kRemoteAll = 3,  // but atomics
  kRemoteAtomic = 4,
  kLocalWrite = 8,  // where peers may do nothing
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

constexpr bool allows(Access granted, Access wanted) {
  return (static_cast<uint8_t>(granted) & static_cast<uint8_t>(wanted)) ==
         static_cast<uint8_t>(wanted);
}

// Registered memory. Its key and its remote address go to a peer that may write, and to nobody
// else.
struct MemoryRegion {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint32_t key = 0;  // local and remote key in one
  // What peers call its first byte: not where it lies, where the NIC can do otherwise. The low bits
  // are those of `address` (kRemoteAlignment).
  uint64_t remote_address = 0;

  // What peers call a byte of it.
  uint64_t remote(const uint8_t* byte) const {
    return remote_address + static_cast<uint64_t>(byte - address);
  }
};

// Remote addresses equal the owner's modulo this, so that what is aligned here, be it to a huge
// page, is aligned to peers.
inline constexpr uint64_t kRemoteAlignment = uint64_t{1} << 21;

// Memory behind a dma-buf, such as a GPU's: `length` bytes from `offset` on, addressed by peers
// from `address` on.
struct DmaBufMemory {
  static constexpr uint64_t kUnknown = 0;
  int fd = -1;
  uint64_t offset = 0;
  uint64_t address = 0;
  size_t length = 0;
  uint64_t allocation = kUnknown;  // its owner's number for what it lies in, never used again
};

// What a peer needs to reach a queue pair, as bytes for the bootstrap to carry. Opaque above the
// NIC.
struct QueuePairAddress {
  static constexpr size_t kMaxBytes = 218;
  std::array<uint8_t, kMaxBytes> bytes{};
  uint8_t size = 0;

  std::span<const uint8_t> view() const { return {bytes.data(), size}; }
};

// What a connected queue pair takes of memory.
struct QueuePairMemory {
  Bytes state = 0;
  Bytes queues = 0;  // in proportion to the NIC's window parameter
};

// Receive requests that several queue pairs take from.
using ReceiveQueueId = uint32_t;

// What a queue pair is made for, and by whom it is joined.
enum class Service : uint8_t {
  kConnected,  // connect_queue_pair: the NIC looks after the connection
  // connect_standard: exactly one connection of standard RC, which its user brings up, and whose
  // end is the queue pair's. Its flow is told then. Only where caps().standard.
  kStandard,
  kDatagram,  // open_datagrams: UD. Only where caps().standard.
};

struct QueuePairConfig {
  FlowId flow = 0;
  TrafficClass traffic_class = TrafficClass::kData;
  // Data queue pairs obey the flow's limits; control queue pairs are neither paced nor windowed.
  bool paced = true;
  uint32_t work_requests = 64;  // bound of posted and not yet completed work requests
  bool posts = true;  // false: nothing will be posted, and what that needs may be left out
  // Bound of posted and not yet used receive requests. 0: the queue pair takes no sends, and writes
  // with immediate need no receive request. Otherwise each of either uses up one, in order; without
  // one the peer tries again for a while. Only where caps().sends.
  uint32_t receives = 0;
  Service service = Service::kConnected;
  std::optional<ReceiveQueueId> receive_queue = std::nullopt;  // instead of its own; not kConnected
};

// A connection of standard RC as its user brings it up (InfiniBand Architecture Specification
// vol. 1, 11.2.5.2): the peer, and what is expected of it.
struct StandardPeer {
  FlowId flow = 0;  // whose limits what is sent there obeys
  std::array<uint8_t, 16> gid{};
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;  // of what it sends
  Bytes mtu = 0;           // path MTU, of both ends
  uint8_t read_depth = 1;  // reads and atomics of the peer at once; 0 counts as 1
  // What it may do to memory that allows it.
  Access access = Access::kRemoteAll | Access::kRemoteAtomic;
  uint8_t rnr_delay = 0;   // by its code (table 45): how long it is to wait for a receive request
};

// Reads and atomics at once, each way, of such a connection: as many as rdma_rxe takes.
inline constexpr uint8_t kMostReads = 128;

// And then how we send.
struct StandardSending {
  uint32_t first_psn = 0;
  uint8_t read_depth = 1;    // reads and atomics at once; 0 counts as 1
  Duration silence_limit;    // without progress for so long the peer is dead
  Duration not_ready_limit;  // likewise without a receive request there
};

enum class Opcode : uint8_t {
  kWrite,         // places bytes in the peer's memory; nobody there is told
  kWriteWithImm,  // and then completes at the peer with `immediate`
  // Only where caps().sends and caps().reads, and only to peers with whom the connection has them:
  // else post() takes none.
  kSend,  // into the memory of the peer's oldest receive request; caps().sends
  kRead,  // from the peer's memory into ours, which must be writable; caps().reads
  // The rest on queue pairs of Service::kStandard only.
  kSendWithImm,
  // On 8 aligned bytes of the peer, whose value before comes into ours.
  kCompareSwap,
  kFetchAdd,
};

// One operation on `length` bytes (0 is a real operation). The memory must stay registered, and
// unchanged, until its completion. Sends and reads go to queue pairs without pacing, or of
// Service::kStandard, only.
struct WorkRequest {
  uint64_t id = 0;  // comes back in the completion
  const uint8_t* local = nullptr;
  uint64_t remote = 0;
  Bytes length = 0;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  Opcode opcode = Opcode::kWrite;
  bool signaled = true;  // false: completes silently unless it fails
  bool awaited = false;  // somebody waits for it: it should complete soon also if it is the last
  bool passing = false;  // it may overtake others of its queue pair: it may go with any packet
  bool host = false;     // memory of the host, not of a GPU: the processor may read it, now
  // On queue pairs of Service::kStandard only.
  bool solicited = false;  // Completion::solicited at the peer
  bool fenced = false;     // not before all reads and atomics that precede it are done
  uint64_t operand = 0;    // of an atomic: what is swapped in or added
  uint64_t compare = 0;    // of kCompareSwap
};

// A message of UD: one packet, which nobody acknowledges.
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
  kSent,          // a work request of ours: the peer's NIC has all of its bytes, or we those read
  kReceived,      // a peer's write with immediate: all of its bytes are in place, and those before
  kReceivedSend,  // a peer's send, or a datagram: likewise
  kBroken,        // the queue pair is in error; its work requests will not complete
};

enum class CompletionStatus : uint8_t {
  kOk,
  kRemoteAccessError,  // the peer refused: unknown key, out of bounds, or no right to write
  kMemoryGone,         // its memory was deregistered before it was done
  kRetryExceeded,      // the peer has not answered within the limit
  kReceiverNotReady,   // the peer has posted no receive request within the limit
  kRemoteRefused,      // the peer's NIC refused: the send is longer than the receive request
  kLocalError,         // of our own NIC: fault() says more
};

struct Completion {
  uint64_t work_request = 0;  // kSent; of the receive request, where one was used up
  Bytes bytes = 0;            // kReceived, kReceivedSend
  QueuePairId queue_pair = 0;
  uint32_t immediate = 0;  // kReceived; of a send, where it has one
  CompletionKind kind = CompletionKind::kSent;
  CompletionStatus status = CompletionStatus::kOk;
  bool has_immediate = false;  // a send
  bool solicited = false;      // the peer wants somebody to be told at once
  uint32_t source_qp = 0;      // of a datagram, whose receive holds a GRH of 40 bytes before it
};

// What came back about a flow's data since the last signal, for the congestion control. A flow that
// had to wait for its rate also signals when all that was posted has been sent. A flow on credit
// signals whenever it has sent, and how many of the NIC's flows had something to send then and were
// allowed to, itself included.
struct FlowSignal {
  FlowId flow = 0;
  Duration rtt;              // of the newest packet acknowledged; 0 when there is none
  Bytes acked = 0;           // newly acknowledged bytes
  Bytes marked = 0;          // of these, marked by ECN on the way
  Bytes lost = 0;            // newly found missing
  Bytes trimmed = 0;         // likewise, because a switch cut off their payload
  Duration trimmed_rtt;      // from sending the newest of them to the word of it; 0: none
  uint32_t sharing = 0;      // see below; 0: not sent since the last signal
  Bytes in_flight = 0;       // after this signal
  Bytes sent = 0;            // by the flow since it began, repetitions included
  bool rerouting = false;    // a better path is looked for
  bool timed_out = false;    // nothing came back for a whole timeout
  bool echo_marked = false;  // the packet that the newest acknowledgement answers was marked
  uint8_t hops = 0;          // of `telemetry`
  std::array<TelemetryHop, kMaxTelemetryHops> telemetry{};  // of that packet
};

// What has come in on a flow since the last such signal, for the allocator.
struct FlowArrival {
  FlowId flow = 0;
  Bytes bytes = 0;  // payload placed in memory, each byte once
  // The shortest from a packet's time stamp to its arrival, by two clocks and modulo 2^32: only
  // differences within a flow mean something.
  uint32_t transit_ns = 0;
  uint32_t timed_bytes = 0;  // payload of the packet that took so long
};

inline constexpr Bytes kNoCredit = ~Bytes{0};

// The congestion control's decision, as the NIC applies it.
struct FlowLimits {
  Rate rate;
  Instant first_send;  // phase: nothing before this time
  // The next packet leaves at first_send, also when it would have waited for longer.
  bool aligned = false;
  SendGrid grid;     // the next packet moves to the nearest instant of it; none: it stays
  Bytes window = 0;  // most bytes in flight
  Bytes burst = 0;   // what may leave at once, payload; 0: caps().burst_bytes, the most
  // The most that the flow may have sent since it began, repetitions included; a packet that begins
  // within it goes as a whole. kNoCredit: no such limit.
  Bytes credit = kNoCredit;
  // A new rate counts from the next packet on; the one that waits for its time keeps it.
  bool from_next_packet = false;
};

class Nic {
 public:
  virtual ~Nic() = default;

  virtual const NicCaps& caps() const = 0;
  virtual const NicCounters& counters() const = 0;
  // Asks the driver: for those who look from time to time.
  virtual std::vector<HardwareCounter> hardware_counters() const { return {}; }

  // Errors: kInvalidArgument for an empty or wrapping range, kUnavailable when all caps().regions
  // are used.
  virtual Result<MemoryRegion> register_memory(void* address, size_t length, Access access) = 0;
  // Addressed by peers from `remote` on. Only where caps().standard.
  virtual Result<MemoryRegion> register_memory_as(void* /*address*/, size_t /*length*/,
                                                  Access /*access*/, uint64_t /*remote*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC chooses remote addresses by itself");
  }
  // Only where caps().dma_buf. Errors: as above, and what the device refuses.
  virtual Result<MemoryRegion> register_dmabuf(const DmaBufMemory& /*memory*/, Access /*access*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC takes no dma-buf: use memory of the host");
  }
  // After this returns, nothing reads or writes the region any more.
  virtual void deregister_memory(const MemoryRegion& region) = 0;
  // The same in two steps: what takes long and needs no turn of the NIC's happens when what is
  // returned goes, on any thread, before the NIC does.
  [[nodiscard]] virtual std::shared_ptr<void> retire_memory(const MemoryRegion& region) {
    deregister_memory(region);
    return nullptr;
  }

  // Whether another registration has the same key: then the memory stays registered after this one
  // is gone.
  virtual bool shared(const MemoryRegion& /*region*/) const { return false; }

  // Pushes what peers have written into memory of a GPU so far to where the GPU sees it: reads a
  // byte of it, behind those writes. Returns what flushed() takes; nullopt from a NIC that never
  // reads. Errors: kUnavailable (too many at once), kSystem.
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
  // The address of a connected queue pair's peer, for people. Empty: unknown.
  virtual std::string peer(QueuePairId /*id*/) const { return {}; }
  virtual QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const = 0;
  // What broke a queue pair, for people: device, cause and cure. Empty when there is no more to say
  // than the completion's status.
  virtual std::string fault(QueuePairId /*id*/) const { return {}; }
  // From here on nothing of the peer's is taken or acknowledged; what was, can be polled. Then
  // destroy it.
  virtual void halt_queue_pair(QueuePairId /*id*/) {}

  // --- where caps().standard; elsewhere not called ---
  // Errors: kUnavailable.
  virtual Result<ReceiveQueueId> create_receive_queue(uint32_t /*receives*/) {
    return fail(ErrorCode::kUnavailable, "the NIC has no receive queues to share");
  }
  // No queue pair has it any more.
  virtual void destroy_receive_queue(ReceiveQueueId /*id*/) {}
  virtual size_t post_shared_receives(ReceiveQueueId /*id*/,
                                      std::span<const ReceiveRequest> /*requests*/) {
    return 0;
  }
  // Takes what the peer sends, from here on. Errors: kInvalidArgument (a GID that is not reached).
  virtual Result<void> connect_standard(QueuePairId /*id*/, const StandardPeer& /*peer*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC brings up its connections by itself");
  }
  // From here on work requests may be posted.
  virtual void start_sending(QueuePairId /*id*/, const StandardSending& /*sending*/) {}
  // Takes datagrams with this key, and from here on sends some.
  virtual void open_datagrams(QueuePairId /*id*/, uint32_t /*queue_key*/, uint32_t /*first_psn*/) {}
  // As post(). A GID that is not reached is a message that is lost.
  virtual size_t post_datagrams(QueuePairId /*id*/, std::span<const Datagram> /*datagrams*/) {
    return 0;
  }
  // As created, with the same number: its work requests are forgotten without completions.
  virtual void reset_queue_pair(QueuePairId /*id*/) {}
  // The same end as a refusal brings about: kBroken is told.
  virtual void break_queue_pair(QueuePairId /*id*/) {}

  // Forgets the queue pair and all of its work requests, at once and without completions.
  virtual void destroy_queue_pair(QueuePairId id) = 0;

  // Takes work requests in order and returns how many; fewer means "full, again later". A work
  // request whose local key does not cover its memory is a broken invariant of ours.
  virtual size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) = 0;
  // Likewise for receive requests. None where !caps().sends.
  virtual size_t post_receives(QueuePairId /*id*/, std::span<const ReceiveRequest> /*requests*/) {
    return 0;
  }
  virtual size_t poll(std::span<Completion> completions) = 0;
  virtual size_t poll_signals(std::span<FlowSignal> signals) = 0;
  // Arrivals are told only when somebody wants to know: they cost time.
  virtual void report_arrivals(bool wanted) = 0;
  virtual size_t poll_arrivals(std::span<FlowArrival> arrivals) = 0;

  virtual void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) = 0;

  // Runs the timers that are due.
  virtual void on_time(Instant now) = 0;
  // When on_time has something to do next; Instant::never() when idle.
  virtual Instant next_deadline() const = 0;
};

}  // namespace pacecar
