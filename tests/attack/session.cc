#include "tests/attack/session.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

namespace pacecar::attack {
namespace {

constexpr size_t kVolley = 64;
constexpr std::chrono::microseconds kPause(50);
// Who does not always listen listens for a hundredth of the time, to the newest jobs.
constexpr std::chrono::milliseconds kListen(5), kDeaf(500);

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// What a session takes, from its start on.
class Stopwatch {
 public:
  explicit Stopwatch(const Budget& budget) : budget_(budget) {}
  bool goes_on(Clock::time_point now) const {
    return seconds(now - start_) < budget_.seconds && *budget_.stopped == 0;
  }
  void note(Outcome& outcome) const {
    outcome.seconds = seconds(Clock::now() - start_);
    outcome.cpu_seconds = cpu_seconds() - cpu_start_;
  }

 private:
  const Budget& budget_;
  const double cpu_start_ = cpu_seconds();
  const Clock::time_point start_ = Clock::now();
};

// How much may be sent by now; what could not be sent in time is made up for a little only.
class Rate {
 public:
  explicit Rate(double per_second) : per_second_(per_second) {}

  size_t due(Clock::time_point now) {
    if (per_second_ == 0) return kVolley;
    credit_ = std::min(credit_ + per_second_ * seconds(now - last_), 4.0 * kVolley);
    last_ = now;
    return static_cast<size_t>(std::clamp<double>(credit_, 0, kVolley));
  }
  void spend(size_t count) { credit_ -= static_cast<double>(count); }

 private:
  double per_second_;
  double credit_ = 0;
  Clock::time_point last_ = Clock::now();
};

class Ears {
 public:
  Ears(std::span<const Tap> taps, Knowledge& knowledge) : taps_(taps), knowledge_(knowledge) {}
  ~Ears() { listen(false); }

  void listen(bool wanted) {
    for (const Tap& tap : taps_) tap.listen(wanted);
  }
  void hear() {
    constexpr size_t kAtOnce = 32;
    for (size_t side = 0; side < taps_.size(); ++side) {
      for (size_t i = 0; i < kAtOnce; ++i) {
        const size_t size = taps_[side].hear(room_);
        if (size == 0) break;
        for (Datagram& one : datagrams_of(std::span(room_).first(size))) {
          knowledge_.heard.add(side, std::move(one));
        }
      }
    }
  }
  // Opens and closes in turn.
  void hear_now_and_then(Clock::time_point now) {
    if (now >= turn_) {
      open_ = !open_;
      listen(open_);
      turn_ = now + (open_ ? Clock::duration(kListen) : Clock::duration(kDeaf));
      hear();
    }
  }

 private:
  std::span<const Tap> taps_;
  Knowledge& knowledge_;
  Bytes room_ = Bytes(1 << 17);
  bool open_ = false;
  Clock::time_point turn_ = Clock::now();
};

}  // namespace

bool listen_first(std::span<const Tap> taps, Knowledge& knowledge, Clock::duration limit) {
  const auto give_up = Clock::now() + limit;
  Ears ears(taps, knowledge);
  ears.listen(true);
  while (!knowledge.heard.knows_both()) {
    if (Clock::now() > give_up) return false;
    std::this_thread::sleep_for(kListen);
    ears.hear();
  }
  return true;
}

Outcome run(Attack& attack, std::span<const Tap> taps, Knowledge& knowledge, Budget budget) {
  Outcome outcome;
  Volley volley;
  Rate rate(budget.rate);
  Ears ears(taps, knowledge);
  ears.listen(attack.always_listens());
  const Stopwatch watch(budget);
  for (auto now = Clock::now(); watch.goes_on(now); now = Clock::now()) {
    attack.always_listens() ? ears.hear() : ears.hear_now_and_then(now);
    const size_t due = rate.due(now);
    if (due == 0) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    volley.clear();
    // An attack may have nothing to say to what has been heard.
    for (size_t i = 0; i < due && volley.size() < due; ++i) attack.shoot(knowledge, volley);
    rate.spend(std::max<size_t>(volley.size(), 1));
    size_t sent = 0;
    for (size_t side = 0; side < taps.size(); ++side) sent += taps[side].send(volley.frames(side));
    outcome.sent += sent;
    outcome.lost += volley.size() - sent;
  }
  watch.note(outcome);
  return outcome;
}

Outcome run(Callers& callers, Budget budget) {
  Outcome outcome;
  Rate rate(budget.rate);
  const Stopwatch watch(budget);
  for (auto now = Clock::now(); watch.goes_on(now); now = Clock::now()) {
    callers.look();
    const size_t due = callers.sees_ports() ? rate.due(now) : 0;
    if (due == 0) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    for (size_t i = 0; i < due; ++i) ++(callers.call() ? outcome.sent : outcome.lost);
    rate.spend(due);
  }
  watch.note(outcome);
  return outcome;
}

}  // namespace pacecar::attack
