// The NIC of a device in this process, and who drives it: the threads that poll completion queues,
// or a keeper thread, which sleeps on the socket while there is nothing to do. All contexts of the
// process that open the device share it.
//
// While callers poll, the keeper naps. A program that polls memory for a peer's writes, or sleeps,
// makes no calls: then the keeper finds waiting packets after a nap. From then on it leads: it
// polls for a while. Then it naps again; if packets wait again at once, it leads for twice as long.
//
// Thread rule: call with mutex() held, except open() and the calls that say otherwise. The mutex
// also guards the completion queues and the queue pairs.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net_plugin/verbs/flows.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/open_nic.h"
#include "transport/io/udp/interfaces.h"
#include "transport/nic/nic.h"

namespace pacecar::ibverbs {

struct Region;
struct Window;

// The lock of a NIC. Threads that call verbs have priority over the keeper, which polls and holds
// the lock nearly always: it would take a plain mutex again before a waiting caller has woken up.
// Any thread.
class TurnLock {
 public:
  void lock() {
    callers_.fetch_add(1, std::memory_order_relaxed);
    if (!spin([this] { return mutex_.try_lock(); })) mutex_.lock();
  }
  // For the keeper: waits as long as callers have the lock or want it.
  void lock_last() {
    const auto taken = [this] { return !called() && try_lock(); };
    while (!spin(taken)) sched_yield();
  }
  // For the keeper: false if any thread has the lock.
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    kept_ = true;
    return true;
  }
  void unlock() {
    const bool kept = std::exchange(kept_, false);
    mutex_.unlock();
    if (!kept) callers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A caller has the lock, or waits for it.
  bool called() const { return callers_.load(std::memory_order_relaxed) > 0; }

 private:
  // Tries for about the time of a turn, as sleeping and waking take longer.
  static constexpr int kTries = 2000;

  template <typename Taken>
  static bool spin(Taken taken) {
    for (int i = 0; i < kTries; ++i) {
      if (taken()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  }

  std::mutex mutex_;
  bool kept_ = false;            // the keeper has the lock; guarded by mutex_
  std::atomic<int> callers_{0};  // callers that have the lock or want it
};

struct Staging {
  uint8_t* data = nullptr;  // null: none
  uint32_t key = 0;
  unsigned size_class = 0;  // logarithm of the size
};

// Registered memory for inline data, and for work requests with several pieces. Sizes are powers of
// two; memory is reused, and released with the pool.
class StagingPool {
 public:
  explicit StagingPool(Nic& nic) : nic_(nic) {}
  ~StagingPool() {
    for (const auto& [memory, region] : all_) nic_.deregister_memory(region);
  }
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Null data: the NIC has no region left.
  Staging take(Bytes bytes) {
    const auto size_class = static_cast<unsigned>(std::bit_width(std::max(bytes, kLeast) - 1));
    auto& free = free_[size_class];
    if (free.empty() && !grow(size_class)) return {};
    const Staging staging = free.back();
    free.pop_back();
    return staging;
  }
  void give_back(const Staging& staging) {
    if (staging.data != nullptr) free_[staging.size_class].push_back(staging);
  }

 private:
  static constexpr Bytes kLeast = 256;
  // Small ones are allocated this many bytes at a time.
  static constexpr Bytes kSlab = 1 << 16;

  bool grow(unsigned size_class) {
    const Bytes each = Bytes{1} << size_class;
    const Bytes bytes = std::max(each, kSlab);
    auto memory = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    const auto region = nic_.register_memory(memory.get(), bytes, Access::kLocalWrite);
    if (!region) return false;
    for (Bytes at = 0; at < bytes; at += each) {
      free_[size_class].push_back({memory.get() + at, region->key, size_class});
    }
    all_.emplace_back(std::move(memory), *region);
    return true;
  }

  Nic& nic_;
  std::array<std::vector<Staging>, 64> free_;  // by size class
  std::vector<std::pair<std::unique_ptr<uint8_t[]>, MemoryRegion>> all_;
};

// The log of the device: the error stream, filtered by PACECAR_LOG, which is read at the first
// call. Any thread.
LogSink log_sink();

// Receives the events of a queue pair.
class CompletionSink {
 public:
  virtual void on_completion(const Completion& completion) = 0;

 protected:
  ~CompletionSink() = default;
};

// An object with a timer.
class Timed {
 public:
  virtual Instant due() const = 0;
  virtual void on_due(Instant now) = 0;

 protected:
  ~Timed() = default;
};

class ProcessNic {
 public:
  // Errors: as open_process_nic, and of the congestion control.
  static Result<std::unique_ptr<ProcessNic>> open(const InterfaceInfo& interface,
                                                  const Params& params);
  ~ProcessNic();

  TurnLock& mutex() { return mutex_; }
  Nic& nic() { return opened_.port->nic(); }
  const NicCaps& caps() { return nic().caps(); }
  const Address& address() const { return opened_.port->address(); }
  // The time limit of making a connection.
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
  void look();
  // Does a whole turn. False: there was nothing to do.
  bool turn();
  // Sends what has been posted.
  void let_out();
  // At the end of a call, without the lock: lets the keeper nap, or wakes it if it must act.
  void note_call();
  // Without the lock: drives the NIC until `fd` can be read.
  void turn_until_readable(int fd);
  // Lets the keeper take over at once, as the caller will sleep elsewhere.
  void hand_over();

 private:
  ProcessNic(OpenedNic opened, const Params& params, FileDescriptor wake);
  bool deliver();
  Instant next_deadline() const;
  void note_due(Instant due, Instant now);
  void keep();
  bool callers_turn() const;
  bool callers_are_late() const;
  void nap(Duration time) const;
  void nap_or_lead();
  void wake_keeper() const;
  void forget_wakes() const;
  Instant prepare_to_sleep();
  void sleep(Instant until, int other_fd) const;
  void sleep_until_needed();

  const Params params_;
  OpenedNic opened_;
  std::unique_ptr<Flows> flows_;
  StagingPool staging_;
  std::unordered_map<uint32_t, Region*> regions_;  // by key
  std::unordered_map<uint32_t, Window*> windows_;  // bound ones, by key
  std::unordered_map<QueuePairId, CompletionSink*> sinks_;
  std::vector<Timed*> timed_;
  TurnLock mutex_;
  Instant deadline_;         // as of the last turn
  bool unfinished_ = false;  // look() has delivered completions, and left out the rest of the turn
  const FileDescriptor wake_;  // eventfd
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> last_call_ns_{0};
  std::atomic<int64_t> due_ns_{0};           // when the NIC is to be driven next
  std::atomic<int> waiting_{0};              // callers in turn_until_readable
  std::atomic<bool> keeper_leads_{false};    // it does not nap
  std::atomic<int64_t> asleep_until_ns_{0};  // 0: the keeper is awake
  // Used by the keeper only.
  Instant leads_until_;
  Duration lead_;  // for how long it leads at a time
  int naps_ = 0;   // since it led
  Duration nap_;   // the next one
  std::thread keeper_;
};

}  // namespace pacecar::ibverbs
