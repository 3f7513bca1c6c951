// A hostile device, opened by one process.
//
// It does its work in ticks; where Behavior::threaded is false a tick is a microsecond.
//
// Thread rule: any thread; one lock.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "tests/support/hostile_verbs/death.h"
#include "tests/support/hostile_verbs/events.h"
#include "tests/support/hostile_verbs/memory.h"
#include "tests/support/hostile_verbs/queue_pair.h"
#include "tests/support/hostile_verbs/queues.h"
#include "tests/support/hostile_verbs/wire.h"
#include "transport/base/prng.h"

namespace pacecar::hostile {

class Device {
 public:
  Device(ibv_device* device, uint16_t number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  static Device& of(ibv_context* context);
  ibv_context* context() { return &verbs_.context; }

  std::mutex& lock() { return lock_; }
  void tick();
  // The link of its port goes down or comes up.
  void set_link(bool up);
  void die(const Death& how);
  void raise(ibv_event_type type);

  // --- for the entry points; under the lock ---
  // Counts a call, which may kill the device. The error of a dead device; 0: it is alive.
  int call();
  // nullopt: it is alive.
  const std::optional<Death>& death() const { return death_; }
  AsyncEvents& events() { return events_; }
  void describe(ibv_device_attr& attributes) const;
  void describe(ibv_port_attr& port) const;
  ibv_qp* create_queue_pair(ibv_pd* domain, ibv_qp_init_attr& wanted);
  int destroy_queue_pair(ibv_qp* queue_pair, std::unique_lock<std::mutex>& lock);
  ibv_cq* create_completion_queue(int entries, ibv_comp_channel* channel, void* user);
  int destroy_completion_queue(ibv_cq* queue, std::unique_lock<std::mutex>& lock);
  void remove_region(const Region& region);
  bool uses(const ibv_pd* domain) const;
  ibv_cq* take_completion_event(CompletionChannel& channel);

  // --- for queue pairs ---
  const Behavior& behavior() const { return behavior_; }
  Prng& prng() { return prng_; }
  Regions& regions() { return regions_; }
  Wire& wire() { return *wire_; }
  uint64_t ticks() const { return ticks_; }
  int64_t now_ns() const;
  void complete(ibv_cq* queue, const ibv_wc& completion, bool solicited, uint64_t send = 0);
  size_t poll(ibv_cq* queue, size_t most, ibv_wc* completions);
  void raise(ibv_event_type type, ibv_qp* queue_pair);
  // A read pushes earlier writes to memory.
  void finish_landing();
  uint16_t number() const { return number_; }

  std::unordered_set<SharedReceives*> shared_receives;
  std::unordered_set<ibv_pd*> domains;
  std::unordered_set<CompletionChannel*> channels;

 private:
  void run();
  void end(const Death& how);
  void raise_idle_event();
  QueuePair* any_lane();
  // The objects that were not destroyed, as text.
  std::string rest() const;

  verbs_context verbs_{};
  Behavior behavior_;
  Prng prng_;
  uint16_t number_;
  mutable std::mutex lock_;
  std::unique_ptr<Wire> wire_;
  Regions regions_;
  std::map<uint32_t, std::unique_ptr<QueuePair>> queue_pairs_;  // by number: the order is the same
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
  AsyncEvents events_;
  uint64_t ticks_ = 0;
  std::optional<Death> death_;
  bool idle_ = false;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Our objects behind the objects of libibverbs.
inline QueuePair& own(ibv_qp* queue_pair) { return *reinterpret_cast<QueuePair*>(queue_pair); }
inline QueuePair& own(ibv_qp_ex* queue_pair) { return own(&queue_pair->qp_base); }
inline CompletionQueue& own(ibv_cq_ex* queue) { return *reinterpret_cast<CompletionQueue*>(queue); }

// What an entry point returns that fails.
template <typename T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace pacecar::hostile
