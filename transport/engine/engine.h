// Engine: drives one NIC and the messenger above it. With PACECAR_PROGRESS=inline the threads that
// poll for their messages do this, and a keeper thread takes over when they stop; with thread it is
// always the keeper (progress_driver.h). All protocol state belongs to the holder of the engine
// lock. Thread rule: any thread; the submissions of one connection from one thread at a time. In a
// forked child an engine of the parent throws std::logic_error, and must not be destroyed.
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <mutex>
#include <utility>

#include "transport/base/params.h"
#include "transport/engine/clock.h"
#include "transport/engine/doorbell.h"
#include "transport/engine/own_process.h"
#include "transport/engine/poll_loop.h"
#include "transport/engine/progress_driver.h"
#include "transport/engine/submissions.h"
#include "transport/message/messenger.h"
#include "transport/nic/nic_port.h"
#include "transport/share/memory/host_share.h"

namespace pacecar {

// How the processes of this host divide a NIC's link.
struct EngineLink {
  std::unique_ptr<HostShare> share;  // null: not divided
  Rate first_rate;                   // FlowEnvironment::first_rate
};

class Engine final : private Driven {
 public:
  // `identity` is unique among the NICs of all hosts. Errors: kInvalidArgument (unknown congestion
  // control), kSystem.
  static Result<std::unique_ptr<Engine>> open(const Params& params, std::unique_ptr<NicPort> port,
                                              const NicIdentity& identity, EngineLink link = {});
  ~Engine();  // Waits at most 300 ms for the last control words to reach the peers.

  // Runs `use(messenger)` or `use(messenger, nic, now)` while nobody polls, at set-up and end.
  template <typename Use>
  auto exclusively(Use use) {
    process_.check();
    const Hold hold(*this);
    drain_submissions(clock_now());
    deadline_ = Instant();  // the next poll must look at everything
    if constexpr (std::invocable<Use, Messenger&>) {
      return use(*messenger_);
    } else {
      return use(*messenger_, nic(), clock_now());
    }
  }

  // Runs `use(memory)`, a slow registration of memory, without the lock if the NIC allows that.
  template <typename Use>
  auto registering(Use use) {
    if (caps().registers_beside) return use(nic());
    return exclusively([&](Messenger&, NicMemory& memory, Instant) { return use(memory); });
  }

  Submissions<MessageSend>& sends() { return sends_; }
  Submissions<MessageReceive>& receives() { return receives_; }
  void submitted();  // After a submission: processes it at once if this thread drives the engine.
  // After the submission of an awaited send: sends it, and leaves all other work to the next poll.
  void send_now();
  // After a submission that may wait for the next poll.
  void wake_keeper() { driver_->wake(); }
  // The newest hint counts.
  void expect(const TrafficHint& hint) { hint_.store(hint); }
  void progress();  // While waiting for a request.
  // Messenger::report_changes, without the lock.
  uint64_t report_changes() const { return report_changes_.load(std::memory_order_relaxed); }
  void rest();  // While waiting for any request: see Context::rest.

  // This process is a forked child of the process that made the engine.
  bool inherited() const { return process_.forked(); }
  const NicIdentity& identity() const { return identity_; }
  const Address& address() const { return port_->address(); }
  const NicCaps& caps() const { return std::as_const(*port_).nic().caps(); }

 private:
  // Holds the lock, with priority over polls.
  class Hold {
   public:
    explicit Hold(Engine& engine) : engine_(engine) {
      engine_.waiting_.fetch_add(1);
      engine_.mutex_.lock();
      engine_.waiting_.fetch_sub(1);
    }
    ~Hold() { engine_.mutex_.unlock(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Engine& engine_;
  };

  Engine(const Params& params, std::unique_ptr<NicPort> port, const NicIdentity& identity,
         EngineLink link, std::unique_ptr<Messenger> messenger);

  Nic& nic() { return port_->nic(); }

  // All require the lock.
  bool poll(Instant now);
  bool poll_without_receiving(Instant now);
  void mark_unfinished();
  bool prepare_to_wait(Instant now);  // As NicPort::prepare_to_wait.
  size_t drain_submissions(Instant now);

  bool try_lock();
  void end_inline_poll(Instant now, Instant next_call = Instant());
  Turn take_turn() override;
  void prepare_to_sleep() override;
  bool has_submissions() const override { return !sends_.empty() || !receives_.empty(); }
  void sleep(Instant until, int bell) override;
  // When a sleep must end at the latest, with that next deadline.
  Instant sleep_limit(Instant deadline) const;

  const OwnProcess process_;
  const Params params_;
  const NicIdentity identity_;
  const std::unique_ptr<NicPort> port_;
  const EngineLink link_;
  const std::unique_ptr<Messenger> messenger_;
  PollLoop loop_;
  Submissions<MessageSend> sends_;
  Submissions<MessageReceive> receives_;

  std::atomic<uint64_t> report_changes_{0};
  std::atomic<TrafficHint> hint_;  // of expect(): atomic, so that no caller waits
  TrafficHint hint_applied_;       // the newest one that the messenger has; under the lock

  std::mutex mutex_;
  Instant deadline_;             // of the poll loop, after the last poll that moved anything
  bool unfinished_ = false;      // the last turn did only the urgent part
  uint32_t empty_polls_ = 0;     // by callers, in a row
  Instant last_moved_;           // when a caller's poll moved anything
  std::atomic<int> waiting_{0};  // threads that wait for the lock for set-up: polls yield to them

  std::unique_ptr<ProgressDriver> driver_;  // null only while it is made
};

}  // namespace pacecar
