// Pacecar's C++ interface: open the NICs, join two processes, register memory, move messages.
//
// Nothing here blocks, except Context's destructor (at most 300 ms, so that the last
// acknowledgements reach the peers).
//
// Thread rule: Context, Listener and Memory may be used from any thread. One connection's
// isend/irecv/test are called by one thread at a time; other connections may be used meanwhile.
// Connections are one-way: the connecting side sends, the accepting side receives.
//
// Life: close connections, then deregister memory (or the reverse: a connection that still uses the
// memory fails its requests), then destroy the Context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/api/error.h"
#include "transport/base/log.h"
#include "transport/engine/back_ends.h"

namespace pacecar {

class Engine;
class MessageRequest;
class StagedRange;
using Request = MessageRequest;  // owned by its connection; dead after test() said done

// A parameter, e.g. {"PACECAR_CC", "fixed"}.
using Setting = std::pair<std::string, std::string>;

// One more page at the process's state socket (transport/state); made by the socket's thread. One
// of the path /metrics is text that follows the Context's own.
struct Page {
  std::string_view path;  // lives as long as the program
  std::string type;       // of its content, as HTTP says it
  std::function<std::string()> make;
};

struct Options {
  std::vector<Setting> settings;  // win over the environment and files
  std::vector<Setting> defaults;  // count where neither those nor `settings` name the parameter
  LogSink log;
  std::vector<Page> pages = {};
};

struct NicInfo {
  std::string name;         // "soft:udp:eth0"
  std::string device;       // "eth0"
  std::string address;      // "192.0.2.1"
  std::string pci_path;     // below /sys/devices; empty for a device without one
  uint64_t guid = 0;        // unique on this host
  uint64_t speed_mbps = 0;  // as the device says, or PACECAR_LINE_RATE; 0 when unknown
  uint64_t mtu_bytes = 0;   // payload per packet
  uint32_t paths = 0;
  uint32_t engines = 1;  // processor cores that turn it, each with sockets of its own
  uint32_t max_connections = 0;
  uint32_t traffic_class = 0;  // IP traffic class byte of data packets, without its ECN bits
  bool ecn = false;
  bool cuda = false;       // takes memory of kind kCuda
  bool dma_buf = false;    // and as a dma-buf
  bool gpu_flush = false;  // a GPU may not see what was received before a flush (start_flush)
  // What one message with GPU memory should carry at most; 0: no limit.
  uint64_t gpu_message_bytes = 0;
  // Which way GPU memory takes and why, for people.
  std::string gpu_memory;
  // Which of its offloads are used, and why others are not, for people; empty: it has none.
  std::string offloads;
  std::optional<uint16_t> rail;  // PACECAR_RAILS: which of the network's rails it is on
  uint32_t ports = 1;            // NICs that are joined in it
  std::vector<size_t> members;   // of bond(): the NICs that it stands for
};

// One of the device's own counters, of whoever uses its port.
struct DeviceCounter {
  std::string name;  // as the driver has it: "out_of_sequence"
  uint64_t count = 0;
};

// Counts of one NIC since it was opened; the message layer's and the congestion control's view.
struct Statistics {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t packets_sent = 0;
  uint64_t packets_received = 0;
  uint64_t packets_retransmitted = 0;
  uint64_t timeouts = 0;
  uint64_t duplicates = 0;
  uint64_t rejected = 0;  // malformed, unknown, refused or corrupt packets
  uint64_t marked_packets = 0;
  uint64_t flows = 0;             // open now
  uint64_t expected_senders = 0;  // peers that may send at once, as expect() said; 0: unknown
  uint64_t flow_state_bytes = 0;  // memory of one flow,
  uint64_t flow_queue_bytes = 0;  // and of its queues, which PACECAR_WINDOW_PACKETS sizes
  double rate_bps = 0;            // decided for the flow that was used last
  double rtt_us = 0;              // smoothed, of the flow that was used last
  uint32_t weight = 0;            // of the flow that was used last
  std::string congestion_control;
  std::vector<DeviceCounter> device_counters;
};

// What a listener hands to the peer, by whatever channel the application has (NCCL's bootstrap).
struct Handle {
  static constexpr size_t kBytes = 128;
  std::array<uint8_t, kBytes> bytes{};
};

class Memory;  // a registration; opaque

enum class MemoryKind : uint8_t { kHost, kCuda };

// Memory to register.
constexpr int kUnknownGpu = -1;

struct MemoryRange {
  void* address = nullptr;
  size_t length = 0;
  MemoryKind kind = MemoryKind::kHost;
  int dmabuf_fd = -1;          // of kCuda, where the caller has exported it; still the caller's
  uint64_t dmabuf_offset = 0;  // of the memory in it
  // Found out by the Context itself where it can ask the driver:
  int gpu = kUnknownGpu;    // the ordinal of the GPU whose it is
  uint64_t allocation = 0;  // what it lies in, by the driver's number; 0: not known, or several
};

// Until test() says that a message is there, anything may lie in its buffer, where it is of
// PACECAR_IN_PLACE and more; a shorter one is written in ascending order, each byte once.
struct ReceiveBuffer {
  void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  const Memory* memory = nullptr;
};

// Registered memory as a peer may write into it by puts. Its owner hands it to that peer, by
// whatever way they have; the peer's NIC, and not the peer, holds to its bounds.
struct Window {
  uint64_t address = 0;  // as peers name its first byte
  uint64_t length = 0;
  uint32_t key = 0;
};
// Errors: kUnavailable for memory that is staged, or registered with several NICs.
Result<Window> window_of(const Memory& memory);

struct ConnectOptions {
  uint32_t weight = 0;  // from 1 to 64; 0: PACECAR_WEIGHT
  bool puts = false;  // it takes iput(); nobody waits for its messages' acknowledgements, and they
                      // leave with the next poll, or hurry()
};

constexpr int kMaxReceiveBuffers = 8;  // buffers per irecv
constexpr int kMaxPutsInARow = 128;    // iput between two isend
constexpr int kMaxRequests = 32;       // irecv per connection; isend and iput: x kMaxReceiveBuffers

// Whether test() would say something new of it: for those who look at many, and lend their thread
// once for all (Context::progress).
bool settled(const Request& request);

struct TestResult {
  bool done = false;
  int count = 0;                                   // sizes that are valid
  std::array<size_t, kMaxReceiveBuffers> sizes{};  // bytes moved, per buffer
};

// Why a connection sends as fast as it does. All connections from one NIC to another share one flow
// and what is told here. Rates are in bit/s; 0: does not apply, or is not known.
struct FlowView {
  // "line" (the sender's own link), "grant" (the receiver), "network", "budget" (of the
  // application's setting), "host" (it may send faster: the hosts are too slow, or too little is
  // under way) or "application" (there is no more to send). Lives as long as the program.
  std::string_view limited_by = "application";
  double rate_bps = 0;
  double grant_bps = 0;       // the receiver's, as it counts now
  uint64_t grant_age_ns = 0;  // since its newest word
  uint64_t phase_ns = 0;      // at which the receiver wants the packets
  uint64_t epoch = 0;         // of that word
  double share_bps = 0;       // of the sender's own link
  double core_bps = 0;        // what the network between carries, as far as known
  double budget_bps = 0;
  double rtt_us = 0;  // smoothed
};

class SendConnection {
 public:
  virtual ~SendConnection() = default;  // closes; never waits for the peer
  // Starts a send; nullptr means "full, again later". `memory` must cover [data, data+size). The
  // first leaves at once; those that are started before it was tested leave together, with the next
  // test(). What the receive buffer does not hold is cut off, unless Params::strict makes that an
  // error; the size that test() gives is what was sent.
  virtual Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) = 0;
  // Starts a write into the peer's memory, at `offset` of a window of theirs; they are not told. It
  // leaves with the next poll, and is done when their NIC has all of it. The message that is sent
  // next is not received before it is in place. Only of connections for puts, whose peer posts
  // receives of one buffer: a put waits for the next of them. nullptr: as of isend. Errors:
  // kInvalidArgument (outside of memory or window, more than kMaxPutsInARow, not a connection for
  // puts).
  virtual Result<Request*> iput(const void* /*data*/, size_t /*size*/, const Memory* /*memory*/,
                                const Window& /*window*/, uint64_t /*offset*/) {
    return fail(ErrorCode::kInvalidArgument,
                "this connection takes no puts: it is over several NICs");
  }
  // Errors: kPeer (dead, silent or closed; names the peer), kInvalidArgument (larger than the
  // receiver's buffer).
  virtual Result<TestResult> test(Request* request) = 0;
  virtual std::string peer() const = 0;  // "host:port", for messages to people
  // The NIC that it uses, where its memory must be registered: the one that was asked for, or, when
  // that has no network in common with the peer's, another.
  virtual size_t nic() const = 0;
  // As it is now. Takes the engine's lock: for those who look from time to time.
  virtual FlowView flow() const = 0;
  // What has been started leaves at once.
  virtual void hurry() {}
  // Hands to the NIC what had to be copied first, as test() does.
  virtual void advance() {}
};

class ReceiveConnection {
 public:
  virtual ~ReceiveConnection() = default;  // closes; never waits for the peer
  // Posts 1..kMaxReceiveBuffers buffers as one request; nullptr means "full, again later".
  virtual Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) = 0;
  virtual Result<TestResult> test(Request* request) = 0;
  virtual std::string peer() const = 0;
  virtual size_t nic() const = 0;  // as SendConnection's
};

// A connection being made; poll until it is there. Destroying it gives up.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // An empty pointer means "not yet".
  virtual Result<std::unique_ptr<SendConnection>> poll() = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // The next connection that has proved the secret; an empty pointer means "not yet". Strangers and
  // silent callers are dropped inside, without an error.
  virtual Result<std::unique_ptr<ReceiveConnection>> accept() = 0;
};

using FlushId = uint64_t;

class Context {
 public:
  // Reads parameters (settings, environment, configuration files) and finds the NICs. While the
  // Context lives, `pacecar doctor` can ask how it stands (PACECAR_STATE_DIR). Errors:
  // kInvalidArgument for a bad parameter, kNotFound when PACECAR_NICS matches nothing.
  [[gnu::visibility("default")]] static Result<std::unique_ptr<Context>> open(
      const Options& options);
  virtual ~Context() = default;

  // What is in it stays where it is.
  virtual std::span<const NicInfo> nics() const = 0;
  // Makes several of the NICs that there are at first (1 to 8, each once) into one more, behind all
  // others; returns its number. Messages over it are divided among them, more to those that carry
  // more; when one is lost, the others carry on. For the same NICs in the same order it is the
  // same; for one NIC that one. Errors: kInvalidArgument, kUnavailable (too many bonds).
  virtual Result<size_t> bond(std::span<const size_t> nics) = 0;
  // One line that says NICs, mode, congestion control and the parameters that are not defaults.
  virtual std::string banner() const = 0;

  // Peers come to this NIC. Where a peer has none of its networks, they are joined over another of
  // this process's NICs (never one that takes less GPU memory): the connection's nic().
  virtual Result<std::unique_ptr<Listener>> listen(size_t nic) = 0;
  // Likewise. Poll errors: kPeer also when there is no network that both processes have; kStale
  // when what this connection was to share with others has ended twice: connecting anew may do.
  // All connections from one NIC to another share a flow, which has the largest weight of them.
  virtual Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                                      const ConnectOptions& options) = 0;
  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle) {
    return connect(nic, handle, ConnectOptions());
  }

  // What the application knows of the traffic to come: how many peers may send to each NIC at the
  // same time, over how many connections each. 0: unknown. The newest call counts; cheap.
  virtual void expect(uint32_t senders, uint32_t connections_per_sender) = 0;

  // GPU memory (kCuda) goes where the NIC's `cuda` says so; what the NIC refuses is staged, with a
  // warning. Errors: kInvalidArgument (no such memory, or the NIC takes none of its kind),
  // kUnavailable (PACECAR_MAX_REGIONS), kPermission (the memory cannot be locked), kSystem.
  virtual Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) = 0;
  Result<const Memory*> register_memory(size_t nic, void* address, size_t length) {
    return register_memory(nic, MemoryRange{.address = address, .length = length});
  }
  virtual Result<void> deregister_memory(size_t nic, const Memory* memory) = 0;

  // How the processor reads and writes memory of kind kCuda, whichever way the NIC takes it: by
  // copies of the GPU's own. Errors: kInvalidArgument (no such memory), kSystem.
  virtual Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& /*range*/) {
    return fail(ErrorCode::kInvalidArgument, "no NIC of this process takes GPU memory");
  }

  // After a receive into GPU memory, before the GPU looks: makes it see what the NIC has written.
  // nullopt: it does already; else flushed() tells when. Later ones are through later.
  virtual Result<std::optional<FlushId>> start_flush(size_t nic, const Memory* memory,
                                                     const void* data) = 0;
  virtual Result<bool> flushed(size_t nic, FlushId flush) = 0;

  // Lends the caller's thread to this NIC, as test() of a request does that is not done.
  virtual void progress(size_t /*nic*/) {}
  // For a thread that waits for requests of this NIC, has nothing else to do, and streams: sleeps
  // for half a millisecond at most, or until something arrives; between the messages of a stream
  // for a moment, whatever arrives. Who measures latencies polls instead.
  virtual void rest(size_t nic) = 0;
  virtual Statistics statistics(size_t nic) const = 0;
};

}  // namespace pacecar
