#include "net_plugin/verbs/process_nic.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "net_plugin/verbs/event_pipe.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/open_nic.h"
#include "transport/engine/own_thread.h"

namespace pacecar::ibverbs {
namespace {

// The keeper naps if callers have driven the NIC within this time.
constexpr Duration kCallerPatience = Duration::from_us(100);
// A nap costs 16 us of a processor. While callers are in time, each is twice as long as the last.
constexpr Duration kNap = Duration::from_us(100);
constexpr Duration kLongestNap = Duration::from_us(400);
// A polling caller calls again sooner than this.
constexpr Duration kCallerPace = Duration::from_us(20);
// How long the keeper leads.
constexpr Duration kFirstLead = Duration::from_ms(1);
constexpr Duration kLongestLead = Duration::from_ms(500);
// The keeper alone drives the NIC of a program that is only written to or read from. After a packet
// it polls for at least this time, as waking takes longer.
constexpr Duration kLeastSpin = Duration::from_us(200);
// How long the last context's close waits for acknowledgements and retransmissions to be sent.
constexpr Duration kLinger = Duration::from_ms(50);

}  // namespace

LogSink log_sink() {
  static const LogLevel most = [] {
    const auto params = load_params_from_environment({}, nullptr);
    return params ? params->log : LogLevel::kWarn;
  }();
  return {[](void*, LogLevel, std::string_view line) {
            std::fprintf(stderr, "pacecar: %.*s\n", static_cast<int>(line.size()), line.data());
          },
          nullptr, most};
}

Result<std::unique_ptr<ProcessNic>> ProcessNic::open(const InterfaceInfo& interface,
                                                     const Params& params) {
  ASSIGN_OR_RETURN(auto opened, open_process_nic(interface, params, log_sink()));
  std::unique_ptr<ProcessNic> nic(new ProcessNic(std::move(opened), params));
  HostLink* const link = nic->opened_.share ? &nic->opened_.share->outgoing() : nullptr;
  ASSIGN_OR_RETURN(nic->flows_, Flows::make(params, nic->nic(), first_rate(nic->opened_), link));
  ASSIGN_OR_RETURN(nic->driver_,
                   ProgressDriver::make(*nic, {.always = params.progress == Progress::kThread,
                                               .patience = kCallerPatience,
                                               .nap = kNap,
                                               .longest_nap = kLongestNap,
                                               .spin = std::max(params.spin, kLeastSpin),
                                               .first_lead = kFirstLead,
                                               .longest_lead = kLongestLead}));
  nic->driver_->start();
  return nic;
}

ProcessNic::ProcessNic(OpenedNic opened, const Params& params)
    : params_(params),
      opened_(std::move(opened)),
      nic_(dynamic_cast<StandardNic&>(opened_.port->nic())),
      staging_(nic_) {}

ProcessNic::~ProcessNic() {
  if (driver_ == nullptr) return;
  const Instant give_up = clock_now() + kLinger;
  for (bool busy = true; busy && clock_now() < give_up;) {
    const std::lock_guard lock(mutex_);
    turn();
    busy = opened_.port->next_deadline() <= clock_now();
  }
  driver_->stop();
}

bool ProcessNic::deliver() {
  std::array<Completion, 64> completions;
  bool notified = false;
  size_t count = 0;
  do {
    count = nic().poll(completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      const auto sink = sinks_.find(completion.queue_pair);
      if (sink != sinks_.end()) sink->second->on_completion(completion);
      notified = true;
    }
  } while (count == completions.size());
  return notified;
}

void ProcessNic::receive() {
  const Instant now = clock_now();
  const size_t received = opened_.port->receive(now);
  if (received > 0 && !unfinished_ && deliver()) {
    unfinished_ = true;
    note_due(now, now);
    return;
  }
  if (received > 0 || unfinished_ || now >= deadline_) turn();
}

bool ProcessNic::turn() {
  unfinished_ = false;
  Instant now = clock_now();
  const size_t received = opened_.port->receive(now);
  if (received > 0) now = clock_now();
  opened_.port->on_time(now);
  bool moved = deliver() || received > 0;
  flows_->poll(now);
  moved |= opened_.port->transmit(now) > 0;
  moved |= deliver();  // datagrams are done when they have been handed over
  for (Timed* const timed : timed_) {
    if (timed->due() <= now) timed->on_due(now);
  }
  deadline_ = next_deadline();
  note_due(deadline_, now);
  return moved;
}

Instant ProcessNic::next_deadline() const {
  Instant next = std::min(opened_.port->next_deadline(), flows_->next_deadline());
  for (const Timed* const timed : timed_) next = std::min(next, timed->due());
  return next;
}

void ProcessNic::send_posted() {
  const Instant now = clock_now();
  flows_->poll(now);
  opened_.port->transmit(now);
  deliver();  // completions of this call: perhaps no packet arrives to wake a sleeping thread
  note_due(next_deadline(), now);
  deadline_ = Instant();  // the next receive() does a whole turn
}

void ProcessNic::note_due(Instant due, Instant now) {
  due_ns_.store(std::max(due, now).ns(), std::memory_order_relaxed);
}

void ProcessNic::note_call() {
  driver_->note_call(clock_now(), Instant::from_ns(due_ns_.load(std::memory_order_relaxed)));
}

void ProcessNic::hand_over() { driver_->hand_over(); }

bool ProcessNic::turn_until_readable(int fd) {
  struct Entered {  // also when the thread is cancelled
    ProgressDriver& driver;
    explicit Entered(ProgressDriver& of) : driver(of) { driver.enter(); }
    ~Entered() { driver.leave(); }
  };
  bool goes_on = true;
  {
    const Entered entered(*driver_);
    pollfd readable{fd, POLLIN, 0};
    while (goes_on && poll(&readable, 1, 0) == 0) {
      Instant until;
      {
        const std::lock_guard lock(mutex_);
        if (turn()) continue;
        until = sleep_deadline();
      }
      goes_on = sleep_interruptibly(until, fd) || restarts_after_signal();
    }
  }
  note_call();
  return goes_on;
}

Instant ProcessNic::sleep_deadline() {
  const bool ready = !unfinished_ && opened_.port->prepare_to_wait(clock_now());
  return ready ? next_deadline() : Instant();
}

void ProcessNic::sleep(Instant until, int other_fd) { (void)sleep_interruptibly(until, other_fd); }

bool ProcessNic::sleep_interruptibly(Instant until, int other_fd) {
  if (!params_.fault.empty()) until = std::min(until, clock_now() + kBlindSleep);
  std::array<pollfd, 2> waiting{pollfd{opened_.port->wait_fd(), POLLIN, 0},
                                pollfd{other_fd, POLLIN, 0}};
  return sleep_until(until, waiting);
}

Turn ProcessNic::take_turn() {
  // The turn of a caller may take longer than kCallerPatience, after many arrivals.
  if (mutex_.called() || !mutex_.try_lock()) return Turn::kBusy;
  const std::lock_guard lock(mutex_, std::adopt_lock);
  return turn() ? Turn::kMoved : Turn::kIdle;
}

bool ProcessNic::callers_left_work() {
  // A sleeping caller does not see later posts of other threads; posting is not a whole turn.
  const auto due = Instant::from_ns(due_ns_.load(std::memory_order_relaxed));
  if (clock_now() - due > kCallerPatience) return true;
  const Instant last = driver_->last_call();
  if (clock_now() - last < kCallerPace) return false;
  driver_->nap(kCallerPace);  // a caller may be about to call note_call()
  return !driver_->entered() && driver_->last_call() == last;
}

void ProcessNic::prepare_to_sleep() {
  const std::lock_guard lock(mutex_);
  driver_->announce_sleep(sleep_deadline());
}

}  // namespace pacecar::ibverbs
