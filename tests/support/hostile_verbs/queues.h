// Queues of a hostile device that queue pairs share: completion queues and shared receive queues.
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

// The verbs object comes first: its address is ours.
struct SharedReceives {
  ibv_srq verbs{};
  uint32_t capacity = 0;
  uint32_t users = 0;
  std::deque<ReceiveRequest> requests;
  // Taken from them, and in their room until the completion is polled, or the queue pair is gone.
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
  ibv_cq& verbs = reinterpret_cast<ibv_cq&>(extended);  // the one begins as the other does
  uint32_t users = 0;
  uint64_t stamp = 0;  // of the completion that was polled last
  // Of ibv_start_poll and its like.
  ibv_wc current{};
  bool polling = false;

  explicit CompletionQueue(const Behavior& behavior) : behavior_(behavior) {}

  // False: it overflowed, and is of no use any more. `solicited`: wakes who waits for such only.
  // `send`: the number of the request, if it is a send.
  bool add(const ibv_wc& completion, bool solicited, uint64_t send, uint64_t tick,
           uint64_t time_stamp);
  // True: the channel has to tell that something appeared.
  bool advance(uint64_t tick);
  bool idle() const { return held_.empty(); }
  // `on_polled(queue pair, send)`.
  size_t poll(size_t most, ibv_wc* completions,
              const std::function<void(uint32_t, uint64_t)>& on_polled);
  void arm(bool solicited_only);
  // Those of a queue pair that is destroyed are gone with it.
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
