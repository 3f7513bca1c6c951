// Pacecar's C++ interface: open the NICs, join two processes, register memory, move messages.
//
// deploy/example/hello.cc moves one message; tour.cc makes every call that needs no GPU, with the
// examples of this header word for word.
//
// Nothing blocks, except Context's destructor: at most 300 ms, so that the last acknowledgements
// reach the peers. A call that cannot be done now returns an empty pointer or nullptr; call again.
//
// Errors. Every call that can fail returns Result<T>: the value, or an Error. An Error has a code
// to branch on (ErrorCode) and one sentence for people that names the cure. Nothing throws. An
// error of one connection does not affect the others.
//
// Ownership. The caller owns each returned unique_ptr. The Context owns `const Memory*`, which is
// valid until it is deregistered. The connection owns `Request*`, which is valid until test() has
// returned done or an error. Data and registration of a request must exist until it is done.
//
// Threads. Any threads may use Context and Memory at once. One thread at a time may use a Listener
// or a connection; different ones may be used in parallel. The only callbacks are Options::log and
// Page::make.
//
// Order. Connections are one-way: the connecting side sends, the accepting side receives. A message
// goes to the oldest receive that is not complete; its tag selects the buffer there.
//
// End. Close connections, then deregister memory, then destroy the Context. The reverse of the
// first two is safe: a connection that still uses the memory fails its requests.
//
// Units. Sizes are in bytes. Other units are in the names: _bps bit/s, _mbps 10^6 bit/s, _us, _ns.
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

namespace pacecar {

class Engine;
class MessageRequest;
using Request = MessageRequest;

// A parameter, e.g. {"PACECAR_CC", "fixed"}.
using Setting = std::pair<std::string, std::string>;

// A further page at the process's state socket (transport/state). The socket's thread calls `make`.
// The text of a page /metrics is appended to the Context's own metrics.
struct Page {
  std::string_view path;  // lives as long as the program
  std::string type;       // its HTTP content type
  std::function<std::string()> make;
};

struct Options {
  std::vector<Setting> settings = {};  // override the environment and files
  std::vector<Setting> defaults = {};  // for parameters that none of these sets
  LogSink log = {};                    // any thread may call it; empty: no log
  std::vector<Page> pages = {};
};

struct NicInfo {
  std::string name;         // "soft:udp:eth0"
  std::string device;       // "eth0"
  std::string address;      // "192.0.2.1"
  std::string pci_path;     // below /sys/devices; empty for a device without one
  uint64_t guid = 0;        // unique on this host
  uint64_t speed_mbps = 0;  // PACECAR_LINE_RATE, else the device's speed; 0: unknown
  uint64_t mtu_bytes = 0;   // payload per packet
  uint32_t paths = 0;
  uint32_t engines = 1;  // processor cores that drive it, each with its own sockets
  uint32_t max_connections = 0;
  uint32_t traffic_class = 0;  // IP traffic class byte of data packets, without its ECN bits
  bool ecn = false;
  bool cuda = false;       // takes memory of kind kCuda
  bool dma_buf = false;    // takes it as a dma-buf
  bool gpu_flush = false;  // a GPU sees received data only after a flush (start_flush)
  // The largest recommended message with GPU memory; 0: no limit.
  uint64_t gpu_message_bytes = 0;
  // For people: how GPU memory is used (direct, staged), and why.
  std::string gpu_memory;
  // For people: the offloads in use, and why others are not; empty: it has none.
  std::string offloads;
  std::optional<uint16_t> rail;  // its rail of the network, from PACECAR_RAILS
  uint32_t ports = 1;            // bonded NICs
  std::vector<size_t> members;   // of bond(): the NICs that it consists of
};

// One of the device's own counters, for all users of its port.
struct DeviceCounter {
  std::string name;  // by the driver: "out_of_sequence"
  uint64_t count = 0;
};

// Counters of one NIC since it was opened, and the present state of its congestion control.
struct Statistics {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t packets_sent = 0;
  uint64_t packets_received = 0;
  uint64_t packets_retransmitted = 0;
  uint64_t packets_refused = 0;  // by the kernel, for another reason than want of room
  uint64_t timeouts = 0;
  uint64_t duplicates = 0;
  uint64_t rejected = 0;  // malformed, unknown, refused or corrupt packets
  uint64_t marked_packets = 0;
  uint64_t flows = 0;             // open now
  uint64_t expected_senders = 0;  // the newest expect(); 0: unknown
  uint64_t flow_state_bytes = 0;  // memory of one flow, without its queues
  uint64_t flow_queue_bytes = 0;  // memory of its queues, set by PACECAR_EXPERT_WINDOW_PACKETS
  double rate_bps = 0;            // of the flow that was used last
  double rtt_us = 0;              // smoothed, of the same flow
  uint32_t weight = 0;            // of the same flow
  std::string congestion_control;
  std::vector<DeviceCounter> device_counters;
};

// The application carries it from the listener to the peer over a channel of its own, such as
// NCCL's bootstrap.
struct Handle {
  static constexpr size_t kBytes = 128;
  std::array<uint8_t, kBytes> bytes{};
};

class Memory;  // a registration; opaque

enum class MemoryKind : uint8_t { kHost, kCuda };

constexpr int kUnknownGpu = -1;

// Memory to register.
struct MemoryRange {
  void* address = nullptr;
  size_t length = 0;
  MemoryKind kind = MemoryKind::kHost;
  int dmabuf_fd = -1;          // of kCuda, if the caller has exported it; the caller closes it
  uint64_t dmabuf_offset = 0;  // of the memory in the dma-buf
  // The Context fills these in if the driver knows them.
  int gpu = kUnknownGpu;    // the GPU's ordinal
  uint64_t allocation = 0;  // the driver's number of its allocation; 0: unknown, or several
};

// Over software NICs the buffer may be polled before test() has returned done: each packet's bytes
// are written in ascending order, each byte once. The packets may arrive in any order.
struct ReceiveBuffer {
  void* data = nullptr;
  size_t size = 0;
  int tag = 0;
  const Memory* memory = nullptr;
};

// Registered memory that a peer may write by puts. The application carries it to that peer. The
// owner's NIC checks its bounds.
struct Window {
  uint64_t address = 0;  // the remote address of its first byte
  uint64_t length = 0;
  uint32_t key = 0;
};
// Errors: kUnavailable for memory that is staged, or registered with several NICs.
[[gnu::visibility("default")]] Result<Window> window_of(const Memory& memory);

struct ConnectOptions {
  uint32_t weight = 0;  // from 1 to 64; 0: PACECAR_WEIGHT
  // It takes iput(). Its messages leave with the next poll or send_now(), and the application does
  // not wait for their acknowledgements.
  bool puts = false;
  bool copied = false;  // it sends copies: the application does not wait for acknowledgements
};

constexpr int kMaxReceiveBuffers = 8;  // buffers per irecv
constexpr int kMaxPutsInARow = 128;    // iput between two isend
constexpr int kMaxRequests = 32;       // irecv per connection; isend and iput: x kMaxReceiveBuffers

// Whether the request is done or has failed. For callers that check many requests and call
// Context::progress once for the whole set.
[[gnu::visibility("default")]] bool settled(const Request& request);

struct TestResult {
  bool done = false;
  int count = 0;                                   // sizes that are valid
  std::array<size_t, kMaxReceiveBuffers> sizes{};  // bytes moved, per buffer
};

// The rate of a connection, and what limits it. All connections from one NIC to another share one
// flow and these figures. Rates are in bit/s; 0: does not apply, or is not known.
struct FlowView {
  // "line" (the sender's link), "grant" (the receiver), "network", "budget" (PACECAR_RATE_MAX),
  // "host" (a host is too slow, or too little is in flight) or "application" (there is no more to
  // send). Lives as long as the program.
  std::string_view limited_by = "application";
  double rate_bps = 0;
  double grant_bps = 0;       // the receiver's grant in force
  uint64_t grant_age_ns = 0;  // since the newest grant arrived
  uint64_t phase_ns = 0;      // of the newest grant
  uint64_t epoch = 0;         // of the newest grant, modulo 2^16
  double share_bps = 0;       // of the sender's link
  double core_bps = 0;        // the network's limit, as far as known
  double budget_bps = 0;      // PACECAR_RATE_MAX
  double rtt_us = 0;          // smoothed
};

class SendConnection {
 public:
  virtual ~SendConnection() = default;  // closes; never waits for the peer
  // Starts a send; nullptr means "full, again later". `memory` must cover [data, data+size).
  //   Request* request = *sender->isend(data, 4096, 7, memory);
  // The first leaves at once; sends that are started before it is tested leave together, with the
  // next test(). A message larger than its buffer fails; one whose tag no buffer has waits.
  // Errors: kInvalidArgument (memory of another NIC, or not all of the range), kPeer.
  virtual Result<Request*> isend(const void* data, size_t size, int tag, const Memory* memory) = 0;
  // Starts a write to `offset` of a window of the peer; the peer gets no completion.
  //   Request* request = *sender->iput(data, 4096, memory, window, 65536);
  // It leaves with the next poll, and is done when the peer's NIC has all its bytes. The next
  // message is received after it is in place. Needs ConnectOptions::puts, and a peer that posts
  // receives of one buffer: a put waits for the next receive. nullptr: as isend. kInvalidArgument:
  // outside of memory or window, more than kMaxPutsInARow, or not a connection for puts.
  virtual Result<Request*> iput(const void* /*data*/, size_t /*size*/, const Memory* /*memory*/,
                                const Window& /*window*/, uint64_t /*offset*/) {
    return fail(ErrorCode::kInvalidArgument,
                "this connection takes no puts: it is over several NICs");
  }
  // Lends the caller's thread to the NIC, and reports whether the request is done.
  //   const TestResult result = *sender->test(request);
  // Errors: kPeer (dead, silent or closed; names the peer), kInvalidArgument (larger than the
  // receiver's buffer). The request is invalid then, too.
  virtual Result<TestResult> test(Request* request) = 0;
  virtual std::string peer() const = 0;  // "host:port", for people
  // The NIC that it uses, with which its memory must be registered: the requested one, or another
  // if the requested one and the peer share no network.
  virtual size_t nic() const = 0;
  // The present state. Takes the engine's lock, so call it rarely.
  virtual FlowView flow() const = 0;
  // Sends started messages at once.
  virtual void send_now() {}
};

class ReceiveConnection {
 public:
  virtual ~ReceiveConnection() = default;  // closes; never waits for the peer
  // Posts 1..kMaxReceiveBuffers buffers as one request; nullptr means "full, again later".
  //   const ReceiveBuffer buffer{data, 4096, 7, memory};
  //   Request* request = *receiver->irecv({&buffer, 1});
  // Errors: the errors of isend, and kInvalidArgument for no or too many buffers.
  virtual Result<Request*> irecv(std::span<const ReceiveBuffer> buffers) = 0;
  // As SendConnection::test; `sizes` are the received bytes of each buffer.
  virtual Result<TestResult> test(Request* request) = 0;
  virtual std::string peer() const = 0;
  virtual size_t nic() const = 0;  // as SendConnection::nic
  // Receives are always posted, as by a server: that no message comes is not reported as a stall.
  virtual void set_preposted() {}
};

// A connection being made. Destroying it gives up.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // The connection; an empty pointer means "not yet".
  virtual Result<std::unique_ptr<SendConnection>> poll() = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // The next connection whose peer has proved the secret; an empty pointer means "not yet". Callers
  // without the secret are dropped without an error. Errors, each once, after which the listener
  // goes on: a peer was refused, has gone or fell silent before its connection was made, and none
  // has come since, for 3 s; no peer has come for 60 times PACECAR_CONNECT_TIMEOUT of calls.
  virtual Result<std::unique_ptr<ReceiveConnection>> accept() = 0;
};

using FlushId = uint64_t;

class Context {
 public:
  // Reads parameters (settings, environment, configuration files) and finds the NICs.
  //   auto context = *Context::open({.settings = {{"PACECAR_NICS", "soft:udp:lo"}}});
  // While the Context exists, `pacecar doctor` can read its state (PACECAR_STATE_DIR). Errors:
  // kInvalidArgument for a bad parameter, kNotFound when PACECAR_NICS matches nothing.
  [[gnu::visibility("default")]] static Result<std::unique_ptr<Context>> open(
      const Options& options);
  virtual ~Context() = default;

  // A NIC's number is its index here. Entries never move; bond() adds one.
  virtual std::span<const NicInfo> nics() const = 0;
  // Bonds 1 to 8 NICs, each named once and no bond itself. Adds the bond as the last NIC and
  // returns its number.
  //   const size_t both = *context->bond(std::array<size_t, 2>{0, 1});
  // Messages are divided among its NICs by their rates; when one is lost, the others continue. The
  // same NICs in the same order give the same bond; one NIC gives itself.
  // Errors: kInvalidArgument, kUnavailable (too many bonds).
  virtual Result<size_t> bond(std::span<const size_t> nics) = 0;
  // One line: NICs, congestion control, and the parameters that differ from the defaults.
  virtual std::string banner() const = 0;

  // Peers connect to this NIC with the listener's handle. A peer without one of its networks is
  // connected over another NIC of this process (never one that takes less GPU memory): see the
  // connection's nic().
  // Errors: kNotFound (no such NIC), kSystem.
  virtual Result<std::unique_ptr<Listener>> listen(size_t nic) = 0;
  // Begins a connection; Connecting::poll returns it. Its errors: kPeer (no listener, a wrong
  // secret, or no network in common), kStale (the flow that this connection was to share has ended,
  // twice: connecting again may succeed). All connections from one NIC to another share a flow,
  // which has the largest weight among its connections.
  virtual Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                                      const ConnectOptions& options) = 0;
  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle) {
    return connect(nic, handle, ConnectOptions());
  }

  // A hint: how many peers may send to each NIC at the same time.
  //   context->expect(7);
  // 0: unknown. The newest hint counts. The call is cheap.
  virtual void expect(uint32_t senders) = 0;

  // Registers memory with a NIC for all its connections. Registering is slow: keep the result.
  //   const Memory* memory = *context->register_memory(0, data, size);
  // GPU memory (kCuda) is for NICs whose `cuda` is set; memory that the NIC refuses is staged, with
  // a warning. Errors: kInvalidArgument (no such memory, or not of a kind that the NIC takes),
  // kUnavailable (PACECAR_MAX_REGIONS), kPermission (the memory cannot be locked), kSystem.
  virtual Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) = 0;
  Result<const Memory*> register_memory(size_t nic, void* address, size_t length) {
    return register_memory(nic, MemoryRange{.address = address, .length = length});
  }
  virtual Result<void> deregister_memory(size_t nic, const Memory* memory) = 0;

  // After a receive into GPU memory: makes the NIC's writes visible to the GPU. nullopt: they are
  // visible; otherwise flushed() returns true once they are. Flushes of a NIC end in order.
  virtual Result<std::optional<FlushId>> start_flush(size_t nic, const Memory* memory,
                                                     const void* data) = 0;
  virtual Result<bool> flushed(size_t nic, FlushId flush) = 0;

  // Lends the caller's thread to this NIC, as test() of a pending request does.
  virtual void progress(size_t /*nic*/) {}
  // For a thread that waits for requests of this NIC and has nothing else to do. Sleeps for at most
  // 500 us, or until something arrives; within a stream of messages shorter, whatever arrives. If
  // latency matters, poll instead.
  virtual void rest(size_t nic) = 0;
  virtual Statistics statistics(size_t nic) const = 0;
};

}  // namespace pacecar
