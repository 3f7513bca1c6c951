// Plays NCCL: one communicator over one loaded plugin. Every call has NCCL's habits: outputs hold
// garbage before it, nothing sleeps, sizes may exceed what is sent.
//
// Throws HostError for a broken rule, a failed call, or a wait that is too long. Calls whose result
// the caller checks return it. Thread rule: as the plugin's own.
#pragma once

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "net_plugin/abi/profiler.h"
#include "net_plugin/abi/tables.h"

namespace pacecar::nccl {

template <typename Pointer>
using Function = std::function<std::remove_pointer_t<Pointer>>;

// The host's side of the interface: a plugin's table of any version, called as if it were the
// newest, with what NCCL does for old plugins. The members keep NCCL's names. A function that the
// plugin lacks is empty, or returns kSuccess where NCCL would not call it (finalize, setNetAttr).
struct AnyNet {
  int version = 0;  // of the table
  const char* name = nullptr;
  // Before version 11 the context means nothing, but is not nullptr when init succeeded.
  std::function<NcclResult(void** context, uint64_t comm_id, const CommConfig& config,
                           Logger logger, ProfilerCallback profiler)>
      init;
  Function<decltype(NetV12::devices)> devices;
  // Properties that a version lacks get NCCL's default.
  Function<decltype(NetV12::getProperties)> getProperties;
  // Returns kInvalidUsage for more members than the version can express.
  std::function<NcclResult(int* device, const VirtualDeviceV12& members)> makeVDevice;
  Function<ListenV11> listen;
  Function<ConnectV11> connect;
  Function<AcceptV7> accept;
  // Return kInternalError for a size that the version cannot express.
  Function<RegMrV8> regMr;
  Function<IsendV10> isend;
  Function<IrecvV10> irecv;
  Function<decltype(NetV12::regMrDmaBuf)> regMrDmaBuf;
  Function<decltype(NetV12::deregMr)> deregMr;
  Function<decltype(NetV12::iflush)> iflush;
  Function<decltype(NetV12::test)> test;
  Function<decltype(NetV12::closeSend)> closeSend;
  Function<decltype(NetV12::closeRecv)> closeRecv;
  Function<decltype(NetV12::closeListen)> closeListen;
  Function<decltype(NetV12::finalize)> finalize;
  Function<decltype(NetV12::setNetAttr)> setNetAttr;
  CommConfig config{kUndefined};  // of init
};

// The table of this version in a loaded library, which outlives it; 0: the newest that there is, as
// NCCL chooses. nullptr: there is none.
std::unique_ptr<AnyNet> find_net(void* library, int version);

// Plays NCCL for a plugin's profiler: reports one communicator's collectives, the operations of its
// proxy thread, and each message, in NCCL's order. Steps are the profiler handles of isend and
// irecv, so that the plugin can report its own requests. Reports only events of the plugin's
// activation mask.
class ProfilePlayer {
 public:
  // A step of an operation. It must not move from its start to its stop: the plugin has its
  // address.
  struct Step {
    const ProfilePlayer* player = nullptr;
    void* event = nullptr;
  };

  // The communicator's identity.
  struct Who {
    uint64_t communicator = 0;
    int nodes = 1;
    int ranks = 1;
    int rank = 0;
  };

  explicit ProfilePlayer(const ProfilerV6& table) : table_(table) {}
  // nullptr: the library has no profiler of version 6.
  static std::unique_ptr<ProfilePlayer> find(void* library);
  // For the net plugin's init.
  static NcclResult callback(void** event, int type, void* step, int64_t plugin_id, void* data);

  NcclResult start(const Who& who);
  NcclResult finalize();
  int activation_mask() const { return mask_; }
  void* context() const { return context_; }

  // Handles; nullptr: not recorded.
  void* start_collective(const std::string& function, size_t count, uint64_t sequence) const;
  void* start_operation(void* collective, int peer, bool sending, int steps) const;
  void start_step(void* operation, int number, Step& step) const;
  void change(const Step& step, ProfileState state, size_t bytes = 0) const;
  void stop_step(Step& step) const;
  void stop(void* event) const;

 private:
  void* begin(ProfileEventV6 event) const;

  const ProfilerV6 table_;
  Who who_;
  void* context_ = nullptr;
  int mask_ = 0;
};

class HostError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throw HostError: the first unless the condition holds, the second unless the plugin's `call`
// succeeded.
inline void expect(bool holds, std::string_view what) {
  if (!holds) throw HostError(std::string(what));
}
inline void expect_success(NcclResult result, std::string_view call) {
  if (result == NcclResult::kSuccess) return;
  throw HostError(std::string(call) + " returns " + std::to_string(static_cast<int>(result)));
}

[[noreturn]] void throw_timeout(std::string_view what, std::chrono::seconds limit);
// Polls `step` until it is true; throws when that takes longer than `limit`.
template <typename Step>
void poll_until(std::string_view what, const Step& step,
                std::chrono::seconds limit = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) throw_timeout(what, limit);
    sched_yield();
  }
}

// Receives the log lines of this process's plugins; from any thread, one line at a time. NCCL's
// logger has no context argument, so it is the process's: the newest Host's.
using LogListener = std::function<void(LogSeverity, const char* line)>;
// To stderr: warnings, or everything.
LogListener stderr_log(bool everything);

struct Subject {
  std::string path;  // of the plugin
  int version = 0;   // of its table; 0: the newest
  int device = 0;
};

using HandleBytes = std::array<uint8_t, kHandleBytes>;

struct Listening {
  HandleBytes handle{};
  void* comm = nullptr;
};

// A sending and a receiving end: of one connection, if the process is connected to itself.
struct Ends {
  void* send = nullptr;
  void* receive = nullptr;
};

// Registered memory of one message.
struct Part {
  std::span<uint8_t> data;
  int tag = 0;
  void* memory = nullptr;
  ProfilePlayer::Step* step = nullptr;  // for which it is posted, with a profiler
};

// The preset garbage of outputs, which a plugin must overwrite.
inline void* const kGarbage = reinterpret_cast<void*>(uintptr_t{0x5A5A5A50});

class Host {
 public:
  // Loads the plugin; start() or init() makes the communicator.
  Host(Subject subject, LogListener listener);
  ~Host();  // finalizes and unloads
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const AnyNet& net() const { return *net_; }
  int device() const { return subject_.device; }
  void* context() const { return context_; }
  void* module() const { return library_; }
  static Logger logger();  // the listener's
  // nullptr: the plugin has none. The caller starts it, before init as NCCL does.
  ProfilePlayer* profile() const { return profile_.get(); }

  // --- the life of a communicator ---
  NcclResult init(int traffic_class = kUndefined) { return init(&context_, traffic_class); }
  void start();  // unless it is started
  void finalize();
  // Another communicator, which the caller finalizes.
  void* another_context();
  int device_count() const;
  NetPropertiesV12 properties(int device) const;
  std::string device_name() const { return properties(device()).name; }

  // --- connections, on the subject's device unless another is named ---
  Listening listen(std::optional<int> device = {}) const;
  // One call; nullptr means "not yet". `handle` is the same object for all calls of an attempt.
  void* try_connect(HandleBytes& handle, std::optional<int> device = {}) const;
  void* try_accept(void* listening) const;
  void* connect(HandleBytes handle, std::optional<int> device = {}) const;
  void* accept(void* listening) const;
  // One call for each end that is not there yet; true when both are.
  bool try_both(HandleBytes& handle, void* listening, Ends* ends,
                std::optional<int> device = {}) const;
  Ends connect_self() const;
  void close_listen(void* listening) const {
    expect_success(net_->closeListen(listening), "closeListen");
  }
  void close_send(void* comm) const { expect_success(net_->closeSend(comm), "closeSend"); }
  void close_receive(void* comm) const { expect_success(net_->closeRecv(comm), "closeRecv"); }
  void close(const Ends& ends) const {
    close_send(ends.send);
    close_receive(ends.receive);
  }

  // --- requests ---
  // One call, whatever it returns. `hint`: what the request holds before it.
  NcclResult post_send(void* comm, const Part& part, void** request) const;
  NcclResult post_receive(void* comm, std::span<const Part> parts, void** request,
                          void* hint = kGarbage) const;
  // One call; nullptr means "again later".
  void* try_send(void* comm, const Part& part) const;
  void* try_receive(void* comm, std::span<const Part> parts, void* hint = kGarbage) const;
  void* try_receive(void* comm, const Part& part, void* hint = kGarbage) const {
    return try_receive(comm, std::span(&part, 1), hint);
  }
  // Call until there is a request.
  void* send(void* comm, const Part& part) const;
  void* receive(void* comm, std::span<const Part> parts) const;
  void* receive(void* comm, const Part& part) const { return receive(comm, std::span(&part, 1)); }
  // True once, when the request is done; `sizes` then has one per buffer of a receive.
  bool test(void* request, std::span<int> sizes) const;
  // Tests the requests in turn until all are done, as a plugin may make progress within test only.
  // Returns one size per buffer of each receive.
  std::vector<std::vector<int>> finish(std::vector<void*> requests) const;
  // Likewise; returns the (first) size.
  int finish(void* request) const { return finish(std::vector{request}).front().front(); }
  // Likewise for both ends of a message; returns the receive's size.
  int finish(void* receiving, void* sending) const {
    return finish(std::vector{receiving, sending}).front().front();
  }

 private:
  NcclResult init(void** context, int traffic_class) const;

  const Subject subject_;
  void* library_;
  std::unique_ptr<AnyNet> net_;
  std::unique_ptr<ProfilePlayer> profile_;
  void* context_ = nullptr;
};

// Memory, registered with one end of a connection.
class Registration {
 public:
  Registration(const Host& host, void* comm, std::span<uint8_t> data);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  void* memory() const { return memory_; }
  void deregister();

 private:
  const Host& host_;
  void* comm_;
  void* memory_ = kGarbage;
};

// Memory in pages that nothing else shares.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<uint8_t> bytes() const { return bytes_; }
  // From here on every access is a fault, as after free().
  void forbid_access() const;

 private:
  std::span<uint8_t> bytes_;
};

// Pages that are registered with one end of a connection.
class Buffer : public Pages, public Registration {
 public:
  Buffer(const Host& host, void* comm, size_t size)
      : Pages(size), Registration(host, comm, bytes()) {}

  Part part(size_t offset, size_t size, int tag = 0) const {
    return {bytes().subspan(offset, size), tag, memory()};
  }
  Part whole(int tag = 0) const { return {bytes(), tag, memory()}; }
};

}  // namespace pacecar::nccl
