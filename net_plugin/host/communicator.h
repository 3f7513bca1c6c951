// A loaded plugin, and one communicator over it, as NCCL makes them. Outputs hold garbage before a
// call. Throws HostError for a broken rule, a failed call, or a wait that is too long. Calls whose
// result the caller checks return it. Thread rule: as the plugin's own.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "net_plugin/abi/tables.h"
#include "net_plugin/host/any_net.h"

namespace pacecar::nccl {

class HostError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throw HostError: unless the condition holds; unless the plugin's `call` succeeded.
inline void expect(bool holds, std::string_view what) {
  if (!holds) throw HostError(std::string(what));
}
inline void expect_success(NcclResult result, std::string_view call) {
  if (result == NcclResult::kSuccess) return;
  throw HostError(std::string(call) + " returns " + std::to_string(static_cast<int>(result)));
}

// How long this process polls, and the function that it calls in between. Tests are more patient.
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

// Receives the log lines of this process's plugins; from any thread, one line at a time. A logger
// of NCCL has no context argument, so the listener of the newest Communicator gets all lines.
using LogListener = std::function<void(LogSeverity, const char* line)>;

struct Subject {
  std::string path;  // of the plugin
  int version = 0;   // of its table; 0: the newest
  int device = 0;
};

// The preset garbage of outputs, which a plugin must overwrite.
inline void* const kGarbage = reinterpret_cast<void*>(uintptr_t{0x5A5A5A50});

class Communicator {
 public:
  // Loads the plugin; start() or init() makes the communicator.
  Communicator(Subject subject, LogListener listener);
  ~Communicator();  // finalizes and unloads
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const AnyNet& net() const { return *net_; }
  int device() const { return subject_.device; }
  void* context() const { return context_; }
  void* module() const { return library_; }
  static Logger logger();  // passes lines to the listener

  NcclResult init(int traffic_class = kUndefined) { return init(&context_, traffic_class); }
  void start();  // unless it is started
  void finalize();
  void* another_context();  // Another communicator, which the caller finalizes.
  int device_count() const;
  NetPropertiesV12 properties(int device) const;

 private:
  NcclResult init(void** context, int traffic_class) const;

  const Subject subject_;
  void* library_;
  std::unique_ptr<AnyNet> net_;
  void* context_ = nullptr;
};

}  // namespace pacecar::nccl
