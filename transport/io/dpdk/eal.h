// DPDK's environment abstraction layer (EAL), started once in a process with the first device and
// kept until the process ends: it cannot be started twice. Thread rule: any thread.
#pragma once

#include <signal.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "transport/base/log.h"
#include "transport/base/result.h"

namespace pacecar {

// `arguments`: of PACECAR_DPDK_EAL, separated by blanks; empty: one core, own memory only, and huge
// pages if enough are free. `pci`: PCI devices will be used. The caller's affinity stays.
Result<void> start_eal(const std::string& arguments, bool pci, const LogSink& log);

// Runs `work` on the EAL's interrupt thread, after the work that drivers have deferred to it, and
// waits until it is done. Drivers such as net_virtio_user close file descriptors when they are
// stopped. If the interrupt thread is about to wait for such a descriptor, it ends the process; so
// drivers are stopped on this thread.
void run_on_interrupt_thread(const std::function<void()>& work);

// Held during operations on devices, of which there is one at a time in the process.
std::mutex& eal_mutex();

// Blocks SIGPIPE in the calling thread, and for ever in threads started while the object lives.
// Drivers (net_virtio_user) may write to sockets without peers; SIGPIPE would end the process.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal();
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;
  ~WithoutPipeSignal();

 private:
  sigset_t before_;
  bool was_pending_;
};

// Collects DPDK's messages during one operation, for the reason of a failure. The destructor logs
// them as kTrace. Used with eal_mutex() held.
class EalOutput {
 public:
  explicit EalOutput(const LogSink& log);
  EalOutput(const EalOutput&) = delete;
  EalOutput& operator=(const EalOutput&) = delete;
  ~EalOutput();

  // Why attaching a device failed: the last line of a driver, because the EAL's later lines are
  // less specific; without one, the first line; without any, `otherwise`.
  std::string from_driver(std::string_view otherwise) const;
  std::string last(std::string_view otherwise) const;  // The last line, or `otherwise`.

 private:
  const LogSink& log_;
};

}  // namespace pacecar
