// Core: a processor core of a software NIC, except its first. It has a SoftNic on its own packet
// I/O, and rings over which the NIC's owner sends writes and limits, and receives completions,
// signals and arrivals. The core's thread takes none of the owner's locks, and the owner waits for
// it only during set-up. Thread rule: the owner's thread calls the functions under "owner". One
// other thread calls turn(), or the owner's thread if this is the only one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "transport/base/fixed_queue.h"
#include "transport/base/spsc_ring.h"
#include "transport/engine/doorbell.h"
#include "transport/engine/soft_port.h"

namespace pacecar {

class Core {
 public:
  // `owner` is rung for completions, signals and arrivals; it outlives the core. Errors: kSystem.
  static Result<std::unique_ptr<Core>> make(std::unique_ptr<SoftPort> port, Doorbell& owner);

  // --- owner ---
  // False: no room now. Posts wait for hand_over(), so that limits set later arrive before them.
  bool post(QueuePairId id, const WorkRequest& work_request);
  bool limit(FlowId flow, const FlowLimits& limits, Instant now);
  bool hand_over();  // False: some posts must wait longer.
  // Something has been published since the last take_published().
  bool has_published() const { return published_.load(std::memory_order_acquire) != seen_; }
  bool take_published();
  bool poll(Completion& completion) { return take(completions_, early_completions_, completion); }
  bool poll(FlowSignal& signal) { return take(signals_, early_signals_, signal); }
  bool poll(FlowArrival& arrival) { return take(arrivals_, early_arrivals_, arrival); }
  void count(NicCounters& total) const;  // Adds the core's counters.

  // Runs `use(nic)` while the core is stopped and its rings are empty.
  template <typename Use>
  auto exclusively(Use use) {
    const Hold hold(*this);
    return use(port_->soft_nic());
  }
  // SoftNic::slot_of.
  uint32_t slot_of(QueuePairId id) const { return port_->soft_nic().slot_of(id); }
  // Afterwards nothing from the peer is accepted; earlier completions can still be polled.
  void halt(QueuePairId id);
  // A flow has ended: drops its signals, so that the next flow with its number does not get them.
  void forget(FlowId flow);

  // --- the core's thread ---
  // A turn: receive, timers, transmit, publish. False: there was nothing to do. With a clock the
  // time is read again after packets have been received.
  bool turn(Instant now, SoftPort::Clock clock);
  // When there is work even if nothing arrives. Not during a turn of another thread.
  Instant next_deadline() const { return deadline_; }
  // As next_deadline(), before a sleep, after Doorbell::expect(). Instant(): there is work already.
  Instant prepare_to_wait(Instant now);
  int wait_fd() const { return port_->wait_fd(); }
  Doorbell& bell() { return *bell_; }

 private:
  struct Post {
    QueuePairId queue_pair;
    WorkRequest work_request;
  };
  struct Limit {
    FlowId flow;
    FlowLimits limits;
    Instant now;
  };
  // Holds the lock, with priority over turns.
  class Hold {
   public:
    explicit Hold(Core& core) : core_(core) {
      core_.waiting_.fetch_add(1);
      core_.mutex_.lock();
      core_.waiting_.fetch_sub(1);
      do {
        core_.hand_over();
        core_.take_commands();
      } while (!core_.waiting_posts_.empty());
    }
    ~Hold() {
      core_.deadline_ = Instant();  // the next turn must look at everything
      core_.mutex_.unlock();
      core_.bell_->ring();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Core& core_;
  };

  Core(std::unique_ptr<SoftPort> port, Doorbell& owner, std::unique_ptr<Doorbell> bell);

  template <typename T>
  static bool take(SpscRing<T>& ring, std::deque<T>& early, T& out) {
    if (early.empty()) return ring.pop(out);
    out = early.front();
    early.pop_front();
    return true;
  }
  void collect();          // Empties the rings to the owner.
  size_t take_commands();  // With the lock held.
  bool publish();

  static constexpr size_t kCounters = sizeof(NicCounters) / sizeof(uint64_t);

  const std::unique_ptr<SoftPort> port_;
  Doorbell& owner_;
  const std::unique_ptr<Doorbell> bell_;

  SpscRing<Post> posts_;
  SpscRing<Limit> limits_;
  SpscRing<Completion> completions_;
  SpscRing<FlowSignal> signals_;
  SpscRing<FlowArrival> arrivals_;
  std::atomic<uint64_t> published_{0};
  std::array<std::atomic<uint64_t>, kCounters> counters_{};

  // For the owner: posts to hand over, and elements taken from the rings before they were polled.
  FixedQueue<Post> waiting_posts_;
  std::deque<Completion> early_completions_;
  std::deque<FlowSignal> early_signals_;
  std::deque<FlowArrival> early_arrivals_;
  uint64_t seen_ = 0;

  std::mutex mutex_;
  std::atomic<int> waiting_{0};  // threads that wait for set-up: turns yield to them
  Instant deadline_;
};

}  // namespace pacecar
