// Pacecar's C++ interface: open the NICs, join two processes, register memory, move messages.
//
// deploy/example/hello.cc moves one message; tour.cc makes every call that needs no GPU, with the
// examples of this header word for word.
//
// Nothing blocks, except Context's destructor: at most 300 ms, so that the last acknowledgements
// reach the peers. A call that cannot be done now returns an empty pointer or nullptr; call again.
//
// Errors. Every call that can fail returns Result<T>: the value, or an Error of a code to branch on
// (ErrorCode) and one sentence for people that names the cure. Nothing throws. An error of one
// connection leaves all others as they are.
//
// Ownership. Pointers that are unique_ptr are the caller's. `const Memory*` and `Request*` are the
// Context's and the connection's: a Request is dead once test() said done or failed, a Memory once
// it is deregistered. The caller keeps data and registration of a request until it is done.
//
// Threads. Context and Memory may be used by any threads at once. A Listener, and isend, irecv and
// test of one connection, are used by one thread at a time, others meanwhile. No callback runs on
// the caller's behalf but Options::log and Page::make.
//
// Order. Connections are one-way: the connecting side sends, the accepting side receives. A message
// goes to the oldest receive that is not complete; its tag chooses the buffer in it.
//
// End. Close connections, then deregister memory, then destroy the Context. The reverse of the
// first two is safe: a connection that still uses the memory fails its requests.
//
// Units. Sizes are bytes, names say where it is otherwise: _bps bit/s, _mbps 10^6 bit/s, _us, _ns.
//
// Stability. Versions are semantic (version.h). What this header declares, the codes of errors and
// the names of parameters are the interface; sentences, log lines and Statistics' device counters
// are not. Up to 1.0 a minor version may change the interface; a patch version never does. The
// shared library's SONAME is the major version.
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
#include "transport/api/version.h"
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
  std::vector<Setting> settings = {};  // win over the environment and files
  std::vector<Setting> defaults = {};  // count where neither those nor `settings` have one
  LogSink log = {};                    // any thread may call it; empty: no log
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
[[gnu::visibility("default")]] Result<Window> window_of(const Memory& memory);

struct ConnectOptions {
  uint32_t weight = 0;  // from 1 to 64; 0: PACECAR_WEIGHT
  bool puts = false;  // it takes iput(); nobody waits for its messages' acknowledgements, and they
                      // leave with the next poll, or hurry()
  bool copied = false;  // what it sends are copies: nobody waits for its acknowledgements
};

constexpr int kMaxReceiveBuffers = 8;  // buffers per irecv
constexpr int kMaxPutsInARow = 128;    // iput between two isend
constexpr int kMaxRequests = 32;       // irecv per connection; isend and iput: x kMaxReceiveBuffers

// Whether test() would report something new: for callers that look at many requests, and lend their
// thread once for all of them (Context::progress).
[[gnu::visibility("default")]] bool settled(const Request& request);

struct TestResult {
  bool done = false;
  int count = 0;                                   // sizes that are valid
  std::array<size_t, kMaxReceiveBuffers> sizes{};  // bytes moved, per buffer
};

// Why a connection sends as fast as it does. All connections from one NIC to another share one flow
// and these figures. Rates are in bit/s; 0: does not apply, or is not known.
struct FlowView {
  // "line" (the sender's own link), "grant" (the receiver), "network", "budget" (of the
  // application's setting), "host" (it may send faster: the hosts are too slow, or too little is
  // under way) or "application" (there is no more to send). Lives as long as the program.
  std::string_view limited_by = "application";
  double rate_bps = 0;
  double grant_bps = 0;       // the receiver's, as it counts now
  uint64_t grant_age_ns = 0;  // since the newest grant arrived
  uint64_t phase_ns = 0;      // when the receiver wants the packets, in their period
  uint64_t epoch = 0;         // of the newest grant, modulo 2^16
  double share_bps = 0;       // of the sender's own link
  double core_bps = 0;        // what the network between carries, as far as known
  double budget_bps = 0;
  double rtt_us = 0;  // smoothed
};

class SendConnection {
 public:
  virtual ~SendConnection() = default;  // closes; never waits for the peer
  // Starts a send; nullptr means "full, again later". `memory` must cover [data, data+size).
  //   Request* request = *sender->isend(data, 4096, 7, memory);
  // The first leaves at once; those that are started before it was tested leave together, with the
  // next test(). What the receive buffer does not hold is cut off, unless PACECAR_STRICT makes that
  // an error; the size that test() returns is what was sent.
  // Errors: kInvalidArgument (memory of another NIC, or not all of the range), kPeer.
  virtual Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) = 0;
  // Starts a write into the peer's memory, at `offset` of a window of theirs; no completion there.
  //   Request* request = *sender->iput(data, 4096, memory, window, 65536);
  // It leaves with the next poll, and is done when their NIC has all of it. The next message is not
  // received before it is in place. Only of connections for puts (ConnectOptions), whose peer posts
  // receives of one buffer: a put waits for the next of them. nullptr: as of isend. Errors:
  // kInvalidArgument (outside of memory or window, more than kMaxPutsInARow, not a connection for
  // puts).
  virtual Result<Request*> iput(const void* /*data*/, size_t /*size*/, const Memory* /*memory*/,
                                const Window& /*window*/, uint64_t /*offset*/) {
    return fail(ErrorCode::kInvalidArgument,
                "this connection takes no puts: it is over several NICs");
  }
  // Lends the caller's thread to the NIC, and reports whether the request is done.
  //   const TestResult result = *sender->test(request);
  // Errors: kPeer (dead, silent or closed; names the peer), kInvalidArgument (larger than the
  // receiver's buffer). The request is dead then, too.
  virtual Result<TestResult> test(Request* request) = 0;
  virtual std::string peer() const = 0;  // "host:port", for messages to people
  // The NIC that it uses, where its memory must be registered: the one that was asked for, or, when
  // that has no network in common with the peer's, another.
  virtual size_t nic() const = 0;
  // As it is now. Takes the engine's lock: for callers that look from time to time.
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
  //   const ReceiveBuffer buffer{data, 4096, 7, memory};
  //   Request* request = *receiver->irecv({&buffer, 1});
  // Errors: as isend's, and kInvalidArgument for no or too many buffers.
  virtual Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) = 0;
  // As SendConnection's; `sizes` are what arrived, buffer by buffer.
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
  // Reads parameters (settings, environment, configuration files) and finds the NICs.
  //   auto context = *Context::open({.settings = {{"PACECAR_NICS", "soft:udp:lo"}}});
  // While the Context lives, `pacecar doctor` can ask for its state (PACECAR_STATE_DIR). Errors:
  // kInvalidArgument for a bad parameter, kNotFound when PACECAR_NICS matches nothing.
  [[gnu::visibility("default")]] static Result<std::unique_ptr<Context>> open(
      const Options& options);
  virtual ~Context() = default;

  // NICs are named by their place in it. Entries never move; bond() adds one.
  virtual std::span<const NicInfo> nics() const = 0;
  // Makes several NICs that are no bonds themselves (1 to 8, each once) into one more, behind all
  // others; returns its number.
  //   const size_t both = *context->bond(std::array<size_t, 2>{0, 1});
  // Messages over it are divided among them, more to those that carry more; when one is lost, the
  // others carry on. For the same NICs in the same order it is the same; for one NIC that one.
  // Errors: kInvalidArgument, kUnavailable (too many bonds).
  virtual Result<size_t> bond(std::span<const size_t> nics) = 0;
  // One line of NICs, mode, congestion control and the parameters that are not defaults.
  virtual std::string banner() const = 0;

  // Peers connect to this NIC, by the listener's handle, which travels by a channel of the
  // application. Where a peer has none of its networks, they are joined over another of this
  // process's NICs (never one that takes less GPU memory): the connection's nic().
  // Errors: kInvalidArgument (no such NIC), kSystem.
  virtual Result<std::unique_ptr<Listener>> listen(size_t nic) = 0;
  // Begins a connection; Connecting::poll returns it. Poll errors: kPeer (nobody there, a wrong
  // secret, or no network that both processes have), kStale when what this connection was to share
  // with others has ended twice: connecting anew may do.
  // All connections from one NIC to another share a flow, which has the largest weight of them.
  virtual Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                                      const ConnectOptions& options) = 0;
  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle) {
    return connect(nic, handle, ConnectOptions());
  }

  // A hint: how many peers may send to each NIC at the same time, over how many connections each.
  //   context->expect(7, 2);
  // 0: unknown. The newest call counts; cheap.
  virtual void expect(uint32_t senders, uint32_t connections_per_sender) = 0;

  // Registers memory with a NIC for all its connections; cheap to use, not to make: keep it.
  //   const Memory* memory = *context->register_memory(0, data, size);
  // GPU memory (kCuda) is for NICs whose `cuda` is set; what the NIC refuses is staged, with a
  // warning. Errors: kInvalidArgument (no such memory, or the NIC takes none of its kind),
  // kUnavailable (PACECAR_MAX_REGIONS), kPermission (the memory cannot be locked), kSystem.
  virtual Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) = 0;
  Result<const Memory*> register_memory(size_t nic, void* address, size_t length) {
    return register_memory(nic, MemoryRange{.address = address, .length = length});
  }
  virtual Result<void> deregister_memory(size_t nic, const Memory* memory) = 0;

  // For processor access to memory of kind kCuda, however the NIC takes it: copies by the GPU.
  // Errors: kInvalidArgument (no such memory), kSystem.
  virtual Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& /*range*/) {
    return fail(ErrorCode::kInvalidArgument, "no NIC of this process takes GPU memory");
  }

  // After a receive into GPU memory, before the GPU reads it: makes the NIC's writes visible there.
  // nullopt: they are; else flushed() returns true once they are. Flushes of a NIC end in order.
  virtual Result<std::optional<FlushId>> start_flush(size_t nic, const Memory* memory,
                                                     const void* data) = 0;
  virtual Result<bool> flushed(size_t nic, FlushId flush) = 0;

  // Lends the caller's thread to this NIC, as test() of a request does that is not done.
  virtual void progress(size_t /*nic*/) {}
  // For a thread that waits for requests of this NIC, has nothing else to do, and streams: sleeps
  // for half a millisecond at most, or until something arrives; between the messages of a stream
  // for a moment, whatever arrives. Where latency counts, poll instead.
  virtual void rest(size_t nic) = 0;
  virtual Statistics statistics(size_t nic) const = 0;
};

}  // namespace pacecar
