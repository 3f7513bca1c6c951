// Runs of an experiment in child processes, so that a crash or a hang costs one run only.
// Thread rule: one thread, in a program without other threads, because children are forked.
#pragma once

#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "bench/cli/child.h"
#include "bench/cli/interrupt.h"
#include "transport/base/units.h"

namespace pacecar::ab {

struct Outcome {
  cli::ExitStatus status;
  bool timed_out = false;
  std::string output;  // stdout
  std::string errors;  // stderr
  double seconds = 0;

  bool ok() const { return status.ok() && !timed_out; }
  // "ended with exit code 3", "was ended by signal 6 (Aborted)", "ran past its limit of 10 s".
  std::string cause() const;
};

class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();  // kills the children that still run

  // Takes a child that has just been started. `timeout`: Duration::max() for none.
  void add(size_t id, cli::Child child, Duration timeout);
  size_t running() const { return children_.size(); }
  // The next child that has ended, with its id. None after 200 ms, so that the caller can draw a
  // progress bar, or at SIGINT or SIGTERM.
  std::optional<std::pair<size_t, Outcome>> wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    size_t id;
    cli::Child child;
    Duration timeout;
    Clock::time_point start = Clock::now();
    bool timed_out = false;
  };

  cli::Interrupt interrupt_{cli::Interrupt::Second::kIgnored};  // the children must be killed
  std::list<Running> children_;
};

}  // namespace pacecar::ab
