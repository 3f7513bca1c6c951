// DPDK's environment abstraction layer (EAL), started once in a process with the first device and
// kept until the process ends: it cannot be started twice. Any thread.
#pragma once

#include <signal.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "transport/base/log.h"
#include "transport/base/result.h"

namespace pacecar {

// `arguments` (of PACECAR_DPDK_EAL, separated by blanks) replace ours; empty: one core, memory of
// this process only, huge pages if enough are free. `pci`: PCI devices will be used. The affinity
// of the calling thread stays as it is.
Result<void> start_eal(const std::string& arguments, bool pci, const LogSink& log);

// Runs `work` on the EAL's interrupt thread and waits for its end. Drivers that handle their peers
// there (net_memif) close file descriptors that this thread may be about to wait for, which ends
// the process: so they must be stopped on this thread.
void run_on_interrupt_thread(const std::function<void()>& work);

// For operations on devices: one at a time in the process.
std::mutex& eal_mutex();

// During its life the calling thread gets no SIGPIPE, nor do threads that it starts, ever: drivers
// (net_virtio_user) write to sockets of peers that may have gone, which would end the process.
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

// Collects DPDK's messages during one operation, for the reason of a failure. Its destructor logs
// them as kTrace. With eal_mutex() held.
class EalWords {
 public:
  explicit EalWords(const LogSink& log);
  EalWords(const EalWords&) = delete;
  EalWords& operator=(const EalWords&) = delete;
  ~EalWords();

  // The reason why attaching a device failed: the last line of a driver, because the EAL's later
  // lines are less specific; the first line if there is none of a driver; `otherwise` without
  // lines.
  std::string from_driver(std::string_view otherwise) const;
  // The last line, or `otherwise`.
  std::string last(std::string_view otherwise) const;

 private:
  const LogSink& log_;
};

}  // namespace pacecar
