#include "net_plugin/verbs/process_nic.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/own_thread.h"
#include "transport/engine/process_nic.h"

namespace pacecar::ibverbs {
namespace {

// The keeper naps if callers have driven the NIC within this time.
constexpr Duration kCallerPatience = Duration::from_us(100);
// A nap costs 16 us of a processor. While callers are in time, each is twice as long as the last.
constexpr Duration kNap = Duration::from_us(100);
constexpr Duration kLongestNap = Duration::from_us(400);
// A polling caller calls again sooner than this.
constexpr Duration kCallerPace = Duration::from_us(20);
// How long the keeper leads. If packets wait within so many naps afterwards, it leads for longer.
constexpr Duration kFirstLead = Duration::from_ms(1);
constexpr Duration kLongestLead = Duration::from_ms(500);
constexpr int kTrialNaps = 3;
// The keeper alone drives the NIC of a program that is only written to or read from. After a packet
// it polls for at least this time, as waking takes longer.
constexpr Duration kLeastSpin = Duration::from_us(200);
// After this time without packets it yields, as both ends of a connection may share a processor.
constexpr Duration kOwnTime = Duration::from_us(5);
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
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return fail(ErrorCode::kSystem, "cannot make an eventfd");
  std::unique_ptr<ProcessNic> nic(new ProcessNic(std::move(opened), params, std::move(wake)));
  HostLink* const link = nic->opened_.share ? &nic->opened_.share->outgoing() : nullptr;
  ASSIGN_OR_RETURN(nic->flows_, Flows::make(params, nic->nic(), first_rate(nic->opened_), link));
  nic->keeper_ = std::thread([raw = nic.get()] { raw->keep(); });
  return nic;
}

ProcessNic::ProcessNic(OpenedNic opened, const Params& params, FileDescriptor wake)
    : params_(params),
      opened_(std::move(opened)),
      nic_(dynamic_cast<StandardNic&>(opened_.port->nic())),
      staging_(nic_),
      wake_(std::move(wake)) {}

ProcessNic::~ProcessNic() {
  if (!keeper_.joinable()) return;
  const Instant give_up = clock_now() + kLinger;
  for (bool busy = true; busy && clock_now() < give_up;) {
    const std::lock_guard lock(mutex_);
    turn();
    busy = opened_.port->next_deadline() <= clock_now();
  }
  stop_ = true;
  wake_keeper();
  keeper_.join();
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

void ProcessNic::look() {
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
  nic().on_time(now);
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

void ProcessNic::let_out() {
  const Instant now = clock_now();
  flows_->poll(now);
  opened_.port->transmit(now);
  deliver();  // completions of this call: perhaps no packet arrives to wake a sleeping thread
  note_due(next_deadline(), now);
  deadline_ = Instant();  // the next look() does a whole turn
}

void ProcessNic::note_due(Instant due, Instant now) {
  due_ns_.store(std::max(due, now).ns(), std::memory_order_relaxed);
}

void ProcessNic::note_call() {
  last_call_ns_.store(clock_now().ns(), std::memory_order_relaxed);
  const int64_t until = asleep_until_ns_.load(std::memory_order_relaxed);
  if (until == 0) return;
  // If the keeper leads it receives the packets; otherwise it naps.
  const bool leads = keeper_leads_.load(std::memory_order_relaxed);
  if (!leads || due_ns_.load(std::memory_order_relaxed) < until) wake_keeper();
}

void ProcessNic::hand_over() {
  last_call_ns_.store(0, std::memory_order_relaxed);
  wake_keeper();
}

void ProcessNic::turn_until_readable(int fd) {
  waiting_.fetch_add(1);
  pollfd readable{fd, POLLIN, 0};
  while (poll(&readable, 1, 0) == 0) {
    Instant until;
    {
      const std::lock_guard lock(mutex_);
      if (turn()) continue;
      until = prepare_to_sleep();
    }
    sleep(until, fd);
  }
  waiting_.fetch_sub(1);
  note_call();
}

// With the lock.
Instant ProcessNic::prepare_to_sleep() {
  const bool ready = !unfinished_ && opened_.port->prepare_to_wait();
  return ready ? next_deadline() : Instant();
}

void ProcessNic::sleep(Instant until, int other_fd) const {
  if (!params_.fault.empty()) until = std::min(until, clock_now() + kBlindSleep);
  std::array<pollfd, 2> waiting{pollfd{opened_.port->wait_fd(), POLLIN, 0},
                                pollfd{other_fd, POLLIN, 0}};
  sleep_until(until, waiting);
}

// --- the keeper ---

void ProcessNic::wake_keeper() const { eventfd_write(wake_.get(), 1); }

bool ProcessNic::callers_turn() const {
  if (params_.progress == Progress::kThread) return false;
  if (waiting_.load(std::memory_order_relaxed) > 0) return true;
  if (keeper_leads_.load(std::memory_order_relaxed)) return false;
  // The turn of a caller may take longer than kCallerPatience, after many arrivals.
  if (mutex_.called()) return true;
  const auto last = Instant::from_ns(last_call_ns_.load(std::memory_order_relaxed));
  return clock_now() - last < kCallerPatience;
}

bool ProcessNic::callers_are_late() const {
  // A caller that sleeps does not see what others have posted since; posting is not a whole turn.
  const auto due = Instant::from_ns(due_ns_.load(std::memory_order_relaxed));
  if (clock_now() - due > kCallerPatience) return true;
  const int64_t last = last_call_ns_.load(std::memory_order_relaxed);
  if (clock_now() - Instant::from_ns(last) < kCallerPace) return false;
  nap(kCallerPace);  // a caller may be about to call note_call()
  return waiting_.load(std::memory_order_relaxed) == 0 &&
         last_call_ns_.load(std::memory_order_relaxed) == last;
}

void ProcessNic::nap_or_lead() {
  nap(nap_);
  ++naps_;
  nap_ = std::min(nap_ * 2, kLongestNap);
  if (!callers_are_late() || !mutex_.try_lock()) return;
  nap_ = kNap;
  const std::lock_guard lock(mutex_, std::adopt_lock);
  if (!turn() || waiting_.load(std::memory_order_relaxed) > 0) return;
  lead_ = naps_ <= kTrialNaps ? std::min(lead_ * 2, kLongestLead) : kFirstLead;
  leads_until_ = clock_now() + lead_;
  keeper_leads_ = true;
}

void ProcessNic::nap(Duration time) const {
  pollfd woken{wake_.get(), POLLIN, 0};
  const timespec span{0, time.ns()};
  ppoll(&woken, 1, &span, nullptr);
  forget_wakes();
}

void ProcessNic::forget_wakes() const {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
}

void ProcessNic::keep() {
  begin_thread("pacecar");
  const Duration spin = std::max(params_.spin, kLeastSpin);
  Instant last_moved = clock_now();
  nap_ = kNap;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (callers_turn()) {
      nap_or_lead();
      last_moved = clock_now();
      continue;
    }
    const Instant now = clock_now();
    if (keeper_leads_ && now >= leads_until_) {
      keeper_leads_ = false;
      naps_ = 0;
    }
    nap_ = kNap;
    mutex_.lock_last();
    const bool moved = turn();
    mutex_.unlock();
    if (moved) {
      last_moved = now;
    } else if (now - last_moved >= spin) {
      sleep_until_needed();
    } else if (now - last_moved >= kOwnTime) {
      sched_yield();
    }
  }
}

void ProcessNic::sleep_until_needed() {
  Instant until;
  {
    const std::lock_guard lock(mutex_);
    until = prepare_to_sleep();
    asleep_until_ns_.store(std::max<int64_t>(until.ns(), 1));
  }
  if (!stop_.load()) sleep(until, wake_.get());
  asleep_until_ns_.store(0);
  forget_wakes();
}

}  // namespace pacecar::ibverbs
