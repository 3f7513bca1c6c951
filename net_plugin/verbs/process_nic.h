// The NIC of a device in this process, and who drives it: the threads that poll completion queues,
// or a keeper thread (transport/engine/progress_driver.h). All contexts of the process that open
// the device share it. A program that polls memory for a peer's writes, or sleeps, makes no calls:
// then the keeper finds waiting packets after a nap, and leads.
// Thread rule: call with mutex() held, except open() and the calls that say otherwise. The mutex
// also guards the completion queues and the queue pairs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net_plugin/verbs/flows.h"
#include "net_plugin/verbs/staging.h"
#include "net_plugin/verbs/turn_lock.h"
#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/open/open_nic.h"
#include "transport/engine/own_process.h"
#include "transport/engine/progress_driver.h"
#include "transport/io/udp/interfaces.h"
#include "transport/nic/standard_nic.h"

namespace pacecar::ibverbs {

struct Region;
struct Window;

// The device's log: the error stream, filtered by PACECAR_LOG as of the first call. Any thread.
LogSink log_sink();

// Receives the events of a queue pair.
class CompletionSink {
 public:
  virtual void on_completion(const Completion& completion) = 0;

 protected:
  ~CompletionSink() = default;
};

class Timed {
 public:
  virtual Instant due() const = 0;
  virtual void on_due(Instant now) = 0;

 protected:
  ~Timed() = default;
};

class ProcessNic final : private Driven {
 public:
  // Errors: as open_process_nic, and of the congestion control.
  static Result<std::unique_ptr<ProcessNic>> open(const InterfaceInfo& interface,
                                                  const Params& params);
  ~ProcessNic();

  TurnLock& mutex() { return mutex_; }
  StandardNic& nic() { return nic_; }
  const NicCaps& caps() { return nic().caps(); }
  // This process is a forked child of the one that opened it.
  bool inherited() const { return process_.forked(); }
  const Address& address() const { return opened_.port->address(); }
  Duration connect_limit() const { return params_.connect_timeout; }
  Flows& flows() { return *flows_; }
  StagingPool& staging() { return staging_; }
  std::unordered_map<uint32_t, Region*>& regions() { return regions_; }
  std::unordered_map<uint32_t, Window*>& windows() { return windows_; }

  void add_sink(QueuePairId id, CompletionSink* sink) { sinks_[id] = sink; }
  void remove_sink(QueuePairId id) { sinks_.erase(id); }
  // Calls on_due() when due() has come, until it is removed.
  void add_timed(Timed* timed) { timed_.push_back(timed); }
  void remove_timed(Timed* timed) { std::erase(timed_, timed); }

  // Receives, and delivers completions. If there were any, transmission waits for the next turn, so
  // that the caller gets them at once.
  void receive();
  bool turn();  // Does a whole turn. False: there was nothing to do.
  void send_posted();
  // At the end of a call, without the lock: lets the keeper nap, or wakes it if it must act.
  void note_call();
  // Without the lock: drives the NIC until `fd` can be read. False: a signal has come.
  bool turn_until_readable(int fd);
  void hand_over();  // Lets the keeper take over at once, as the caller will sleep elsewhere.

 private:
  ProcessNic(OpenedNic opened, const Params& params);
  bool deliver();
  Instant next_deadline() const;
  void note_due(Instant due, Instant now);
  Instant sleep_deadline();  // With the lock: when a sleep must end.
  Turn take_turn() override;
  bool callers_left_work() override;
  void prepare_to_sleep() override;
  void sleep(Instant until, int other_fd) override;
  bool sleep_interruptibly(Instant until, int other_fd);  // False: a signal has come.

  const OwnProcess process_;
  const Params params_;
  OpenedNic opened_;
  StandardNic& nic_;  // of opened_
  std::unique_ptr<Flows> flows_;
  StagingPool staging_;
  std::unordered_map<uint32_t, Region*> regions_;  // by key
  std::unordered_map<uint32_t, Window*> windows_;  // bound ones, by key
  std::unordered_map<QueuePairId, CompletionSink*> sinks_;
  std::vector<Timed*> timed_;
  TurnLock mutex_;
  Instant deadline_;                // as of the last turn
  bool unfinished_ = false;         // receive() has left out the rest of a turn after completions
  std::atomic<int64_t> due_ns_{0};  // when the NIC is to be driven next
  std::unique_ptr<ProgressDriver> driver_;
};

}  // namespace pacecar::ibverbs
