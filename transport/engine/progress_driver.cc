#include "transport/engine/progress_driver.h"

#include <sched.h>

#include <algorithm>

#include "transport/base/return_if_error.h"
#include "transport/base/start_thread.h"
#include "transport/engine/own_thread.h"

namespace pacecar {
namespace {

// After this idle time a polling keeper yields, as both ends of a connection may share a processor.
constexpr Duration kOwnTime = Duration::from_us(5);

}  // namespace

Result<std::unique_ptr<ProgressDriver>> ProgressDriver::make(Driven& driven,
                                                             const ProgressPolicy& policy) {
  ASSIGN_OR_RETURN(auto bell, Doorbell::make());
  return std::unique_ptr<ProgressDriver>(new ProgressDriver(driven, policy, std::move(bell)));
}

ProgressDriver::ProgressDriver(Driven& driven, const ProgressPolicy& policy,
                               std::unique_ptr<Doorbell> bell)
    : driven_(driven), policy_(policy), bell_(std::move(bell)) {}

void ProgressDriver::start() {
  const std::lock_guard lock(starting_);
  if (!thread_.joinable()) {
    thread_ = start_thread<std::thread>("drives a NIC", [this] { run(); });
  }
}

void ProgressDriver::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  bell_->ring();
  thread_.join();
}

void ProgressDriver::run() {
  begin_thread("pacecar");
  ProgressState state(policy_);
  while (!stops()) {
    const Instant now = clock_now();
    switch (state.decide(last_call(), entered(), now)) {
      case Driving::kCallers:
        if (!driven_.needed()) {
          state.on_not_needed();
          break;
        }
        nap(state.next_nap());
        if (!stops() && driven_.callers_left_work()) {
          const Turn turn = driven_.take_turn();
          state.on_late_turn(entered() ? Turn::kIdle : turn, clock_now());
        }
        break;
      case Driving::kKeeper:
      case Driving::kLeading: {
        const Turn turn = driven_.take_turn();
        state.on_turn(turn, now);
        // A caller has the lock, perhaps for long: software devices transmit while it posts.
        if (turn == Turn::kBusy && state.gives_way()) nap(policy_.nap);
        if (turn != Turn::kMoved && state.idle(now) >= kOwnTime) sched_yield();
        break;
      }
      case Driving::kNobody:
        sleep();
        state.on_woken(clock_now());
        break;
    }
  }
}

void ProgressDriver::announce_sleep(Instant until) {
  sleeps_until_ = until;
  bell_->expect();
  asleep_until_ns_.store(std::max<int64_t>(until.ns(), 1));
}

void ProgressDriver::sleep() {
  driven_.prepare_to_sleep();
  if (!driven_.has_submissions() && !stop_.load()) driven_.sleep(sleeps_until_, bell_->fd());
  asleep_until_ns_.store(0);
  bell_->answer();
}

void ProgressDriver::nap(Duration time) {
  bell_->expect();
  pollfd woken{bell_->fd(), POLLIN, 0};
  if (!stop_.load() && !handed_over_.exchange(false)) {
    sleep_until(clock_now() + time, {&woken, 1});
  }
  bell_->answer();
}

}  // namespace pacecar
