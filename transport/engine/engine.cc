#include "transport/engine/engine.h"

#include <algorithm>
#include <array>

#include "transport/base/check.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/bootstrap/auth.h"
#include "transport/engine/own_thread.h"
#include "transport/engine/polling.h"

namespace pacecar {
namespace {

// The keeper takes over 1 to 3 ms after the last poll of a caller.
constexpr Duration kPatience = Duration::from_ms(1);
constexpr Duration kNap = Duration::from_ms(2);
// Callers that find nothing in this many polls yield, as the peer may need the processor.
constexpr uint32_t kEmptyPollsBeforeYield = 100;
constexpr Duration kLongestRest = Duration::from_us(500);
// While messages keep coming, a caller that finds nothing sleeps for NicCaps::jitter divided by
// this. Arrivals do not end the sleep: waking up costs more than polling a little later, and with
// software devices it also costs the sender.
constexpr int64_t kStreamRestShare = 5;
// A stream has ended when nothing has arrived for this many of these sleeps.
constexpr int64_t kStreamRests = 10;
// How long a closing engine waits for its last control words, and how often it polls.
constexpr Duration kLinger = Duration::from_ms(300);
constexpr Duration kLingerStep = Duration::from_us(200);

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const Params& params, std::unique_ptr<NicPort> port,
                                             const NicIdentity& identity, EngineLink link) {
  const NicCaps& caps = std::as_const(*port).nic().caps();
  const uint32_t eager = caps.software ? static_cast<uint32_t>(params.eager) : 0;
  auto messenger = Messenger::create(port->nic(),
                                     {.identity = identity,
                                      .congestion_control = params.cc,
                                      .line_rate = caps.line_rate,
                                      .rate_max = params.rate_max,
                                      .weight = params.weight,
                                      .first_rate = link.first_rate,
                                      .outgoing = link.share ? &link.share->outgoing() : nullptr,
                                      .incoming = link.share ? &link.share->incoming() : nullptr,
                                      .max_connections = params.max_connections,
                                      .silence_limit = params.timeout,
                                      .keep_alive = keep_alive_of(params.timeout),
                                      .first_flow_number = random_value<uint64_t>(),
                                      .eager = eager},
                                     clock_now());
  if (!messenger) {
    return fail(messenger.error().code, "PACECAR_CC: " + messenger.error().message);
  }
  auto engine = std::unique_ptr<Engine>(
      new Engine(params, std::move(port), identity, std::move(link), std::move(*messenger)));
  ASSIGN_OR_RETURN(engine->driver_,
                   ProgressDriver::make(*engine, {.always = params.progress == Progress::kThread,
                                                  .patience = kPatience,
                                                  .nap = kNap,
                                                  .longest_nap = kNap,
                                                  .spin = params.spin}));
  engine->driver_->start();
  return engine;
}

Engine::Engine(const Params& params, std::unique_ptr<NicPort> port, const NicIdentity& identity,
               EngineLink link, std::unique_ptr<Messenger> messenger)
    : params_(params),
      identity_(identity),
      port_(std::move(port)),
      link_(std::move(link)),
      messenger_(std::move(messenger)),
      loop_(*port_, *messenger_) {}

Engine::~Engine() {
  const Instant give_up = clock_now() + kLinger;
  bool drained = false;
  while (!drained && clock_now() < give_up) {
    {
      const Hold hold(*this);
      poll(clock_now());
      drained = messenger_->drained();
    }
    if (!drained) std::this_thread::sleep_for(std::chrono::nanoseconds(kLingerStep.ns()));
  }
  if (driver_ != nullptr) driver_->stop();
}

// --- with the lock held ---

bool Engine::poll(Instant now) {
  const size_t received = loop_.receive(now);
  // Most polls find nothing, and end here.
  if (received == 0 && now < deadline_ && sends_.empty() && receives_.empty()) return false;
  // Packets may have arrived after the turn began.
  const Instant time = received > 0 ? clock_now() : now;
  if (received > 0) Polling::note_moved(time);
  // A thread that waits for a message continues at once; the next turn does the rest of this one.
  if (received > 0 && !unfinished_ && loop_.deliver(time)) {
    mark_unfinished();
    return true;
  }
  return poll_without_receiving(time) || received > 0;
}

void Engine::mark_unfinished() {
  unfinished_ = true;
  deadline_ = Instant();  // at once
}

bool Engine::poll_without_receiving(Instant now) {
  const size_t submitted = drain_submissions(now);
  const size_t sent = loop_.advance(now);
  unfinished_ = false;
  deadline_ = loop_.next_deadline();
  report_changes_.store(messenger_->report_changes(), std::memory_order_relaxed);
  if (sent + submitted > 0) Polling::note_moved(now);
  return sent + submitted > 0;
}

// A NIC with manual progress may have received in port_->prepare_to_wait(). Its descriptor does not
// report that later, so it is processed now.
bool Engine::prepare_to_wait(Instant now) {
  if (!port_->prepare_to_wait(now)) return false;
  return !caps().manual_progress || !poll_without_receiving(now);
}

size_t Engine::drain_submissions(Instant now) {
  if (const TrafficHint hint = hint_.load(std::memory_order_relaxed); hint != hint_applied_) {
    hint_applied_ = hint;
    messenger_->hint(hint, now);
  }
  // The application's request pools have the same bounds, so no submission is refused.
  const size_t sent = sends_.drain([this](uint32_t connection, MessageSend& send) {
    PACECAR_CHECK(messenger_->send(connection, send));
  });
  return sent + receives_.drain([&](uint32_t connection, MessageReceive& receive) {
    PACECAR_CHECK(messenger_->receive(connection, receive, now));
  });
}

// --- driven by callers ---

bool Engine::try_lock() {
  return waiting_.load(std::memory_order_relaxed) == 0 && mutex_.try_lock();
}

void Engine::submitted() {
  process_.check();
  // If not here, the holder of the lock, the keeper or the next progress() processes it.
  if (params_.progress == Progress::kThread || !try_lock()) return wake_keeper();
  const Instant time = clock_now();
  poll_without_receiving(time);
  end_inline_poll(time);
}

void Engine::send_now() {
  process_.check();
  if (params_.progress == Progress::kThread || !try_lock()) return wake_keeper();
  const Instant time = clock_now();
  drain_submissions(time);
  loop_.send_now(time);
  mark_unfinished();
  end_inline_poll(time);
}

void Engine::progress() {
  process_.check();
  const Instant time = clock_now();
  if (params_.progress == Progress::kThread || !try_lock()) return Polling::give_way(time);
  const bool moved = poll(time);
  empty_polls_ = moved ? 0 : empty_polls_ + 1;
  if (moved) last_moved_ = time;
  const bool yields = empty_polls_ > kEmptyPollsBeforeYield;
  end_inline_poll(time);
  if (yields) Polling::give_way(time);
}

void Engine::rest() {
  process_.check();
  Instant until = clock_now() + kLongestRest;
  int fd = -1;  // if another thread polls, only time ends the wait
  if (params_.progress == Progress::kInline && try_lock()) {
    const Instant time = clock_now();
    const Duration short_sleep = caps().jitter / kStreamRestShare;
    const bool needs_polling = port_->wait_fd() < 0 || caps().manual_progress;
    if (poll(time)) {
      last_moved_ = until = time;
    } else if (time - last_moved_ < short_sleep * kStreamRests && needs_polling) {
      until = time;  // without a descriptor a sleep costs more than it saves
    } else if (time - last_moved_ < short_sleep * kStreamRests) {
      until = sleep_limit(std::min(deadline_, time + short_sleep));
    } else {
      until = prepare_to_wait(time) ? sleep_limit(std::min(deadline_, until)) : time;
      fd = port_->wait_fd();
    }
    // This thread polls again by then, so the keeper need not take over.
    end_inline_poll(time, until);
  }
  pollfd waiting{fd, POLLIN, 0};
  sleep_until(until, {&waiting, 1});
}

// Wakes the keeper if it would sleep beyond the new deadline.
void Engine::end_inline_poll(Instant now, Instant next_call) {
  const Instant due = deadline_;
  mutex_.unlock();
  driver_->note_call(std::max(now, next_call), due);
}

// --- driven by the keeper thread ---

Turn Engine::take_turn() {
  if (!try_lock()) return Turn::kBusy;
  const bool moved = poll(clock_now());
  mutex_.unlock();
  return moved ? Turn::kMoved : Turn::kIdle;
}

Instant Engine::sleep_limit(Instant deadline) const {
  const bool woken = params_.fault.empty() && port_->wait_fd() >= 0;
  return woken ? deadline : std::min(deadline, clock_now() + kBlindSleep);
}

void Engine::prepare_to_sleep() {
  const Hold hold(*this);
  const bool waits = !unfinished_ && prepare_to_wait(clock_now());
  deadline_ = waits ? loop_.next_deadline() : Instant();
  driver_->announce_sleep(sleep_limit(deadline_));
}

void Engine::sleep(Instant until, int bell) {
  std::array<pollfd, 2> waiting{pollfd{port_->wait_fd(), POLLIN, 0}, pollfd{bell, POLLIN, 0}};
  sleep_until(until, waiting);
}

}  // namespace pacecar
