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
#include <vector>

#include "net_plugin/abi/tables.h"
#include "net_plugin/host/any_net.h"
#include "net_plugin/host/profile_player.h"

namespace pacecar::nccl {

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

// How long this process polls, and what it does in between. Tests are more patient.
inline std::chrono::seconds g_polls_for{30};
inline void (*g_between_polls)(std::chrono::nanoseconds waited) = [](auto) { sched_yield(); };

// Polls `step` until it is true; throws when that takes too long.
template <typename Step>
void poll_until(std::string_view what, const Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  while (!step()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > g_polls_for) throw HostError(std::string(what) + ": it takes too long");
    g_between_polls(waited);
  }
}

// Receives the log lines of this process's plugins; from any thread, one line at a time. NCCL's
// logger has no context argument, so it is the process's: the newest Host's.
using LogListener = std::function<void(LogSeverity, const char* line)>;
// Writes warnings to stderr.
LogListener warnings_to_stderr();

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
