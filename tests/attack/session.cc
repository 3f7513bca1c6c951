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
// An attack that does not always capture does so 1% of the time, to know the newest jobs.
constexpr std::chrono::milliseconds kCapturing(5), kNotCapturing(500);

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Time and CPU time since the session's start.
class Stopwatch {
 public:
  explicit Stopwatch(const Budget& budget) : budget_(budget) {}
  bool running(Clock::time_point now) const {
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

// How many packets are due. After a delay at most four volleys are made up for.
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

class Capture {
 public:
  Capture(std::span<const Tap> taps, Knowledge& knowledge) : taps_(taps), knowledge_(knowledge) {}
  ~Capture() { set_capturing(false); }

  void set_capturing(bool wanted) {
    for (const Tap& tap : taps_) tap.set_capturing(wanted);
  }
  void receive() {
    constexpr size_t kAtOnce = 32;
    for (size_t side = 0; side < taps_.size(); ++side) {
      for (size_t i = 0; i < kAtOnce; ++i) {
        const size_t size = taps_[side].receive(room_);
        if (size == 0) break;
        for (Datagram& one : datagrams_of(std::span(room_).first(size))) {
          knowledge_.captured.add(side, std::move(one));
        }
      }
    }
  }
  // Starts and stops capturing in turn; receives at each change.
  void receive_in_turns(Clock::time_point now) {
    if (now >= turn_) {
      open_ = !open_;
      set_capturing(open_);
      turn_ = now + (open_ ? Clock::duration(kCapturing) : Clock::duration(kNotCapturing));
      receive();
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

bool capture_first(std::span<const Tap> taps, Knowledge& knowledge, Clock::duration limit) {
  const auto give_up = Clock::now() + limit;
  Capture capture(taps, knowledge);
  capture.set_capturing(true);
  while (!knowledge.captured.knows_both()) {
    if (Clock::now() > give_up) return false;
    std::this_thread::sleep_for(kCapturing);
    capture.receive();
  }
  return true;
}

Outcome run(Attack& attack, std::span<const Tap> taps, Knowledge& knowledge, Budget budget) {
  Outcome outcome;
  Volley volley;
  Rate rate(budget.rate);
  Capture capture(taps, knowledge);
  capture.set_capturing(attack.always_captures());
  const Stopwatch watch(budget);
  for (auto now = Clock::now(); watch.running(now); now = Clock::now()) {
    attack.always_captures() ? capture.receive() : capture.receive_in_turns(now);
    const size_t due = rate.due(now);
    if (due == 0) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    volley.clear();
    // An attack may add no frame, for example when no data has been captured.
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
  for (auto now = Clock::now(); watch.running(now); now = Clock::now()) {
    callers.read_tables();
    const size_t due = callers.has_ports() ? rate.due(now) : 0;
    if (due == 0) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    for (size_t i = 0; i < due; ++i) ++(callers.connect_one() ? outcome.sent : outcome.lost);
    rate.spend(due);
  }
  watch.note(outcome);
  return outcome;
}

}  // namespace pacecar::attack
