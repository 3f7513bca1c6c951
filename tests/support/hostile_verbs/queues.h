// Queues of a hostile device that queue pairs share: completion queues and shared receive queues.
// Thread rule: under the device's lock.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "tests/support/hostile_verbs/behavior.h"
#include "tests/support/hostile_verbs/events.h"

namespace pacecar::hostile {

struct ReceiveRequest {
  uint64_t id = 0;
  std::vector<ibv_sge> pieces;
};

// The verbs object is the first member: it has the address of the queue.
struct SharedReceives {
  ibv_srq verbs{};
  uint32_t capacity = 0;
  uint32_t users = 0;
  std::deque<ReceiveRequest> requests;
  // Taken by queue pairs. An entry is free when the completion is polled or the queue pair
  // destroyed.
  uint32_t taken = 0;

  bool full() const { return requests.size() + taken >= capacity; }
};

struct CompletionChannel {
  ibv_comp_channel verbs{};
  EventQueue<ibv_cq*> events;
};

class CompletionQueue {
 public:
  ibv_cq_ex extended{};
  ibv_cq& verbs = reinterpret_cast<ibv_cq&>(extended);  // ibv_cq_ex begins with ibv_cq's members
  uint32_t users = 0;
  uint64_t stamp = 0;  // of the completion that was polled last
  // State of ibv_start_poll, ibv_next_poll and ibv_end_poll.
  ibv_wc current{};
  bool polling = false;

  explicit CompletionQueue(const Behavior& behavior) : behavior_(behavior) {}

  // False: the queue has overflowed and is unusable. `solicited`: wakes waiters for solicited
  // completions. `send`: the number of the request, if it is a send.
  bool add(const ibv_wc& completion, bool solicited, uint64_t send, uint64_t tick,
           uint64_t time_stamp);
  // True: the channel must be notified.
  bool advance(uint64_t tick);
  bool idle() const { return held_.empty(); }
  // `on_polled(queue pair, send)`.
  size_t poll(size_t most, ibv_wc* completions,
              const std::function<void(uint32_t, uint64_t)>& on_polled);
  void arm(bool solicited_only);
  // Drops the completions of a destroyed queue pair.
  void forget(uint32_t queue_pair);

 private:
  struct Entry {
    ibv_wc completion;
    bool solicited;
    uint64_t send;
    uint64_t due;
    uint64_t stamp;
  };
  enum class Armed { kNo, kSolicited, kAny };

  const Behavior& behavior_;
  std::deque<Entry> held_;
  std::deque<Entry> visible_;
  Armed armed_ = Armed::kNo;
};

}  // namespace pacecar::hostile
