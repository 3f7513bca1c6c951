// Child processes: each runs a function or a command, so that a crash or a hang costs one run only.
// Their output is kept.
// Thread rule: one thread, in a program without other threads, because children are forked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/perf/interrupt.h"
#include "transport/base/units.h"

namespace pacecar::ab {

struct Outcome {
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: none
  bool timed_out = false;
  std::string output;  // stdout
  std::string errors;  // stderr
  double seconds = 0;

  bool ok() const { return exit_code == 0 && signal == 0 && !timed_out; }
  // "ended with exit code 3", "was ended by signal 6 (Aborted)", "ran past its limit of 10 s".
  std::string cause() const;
};

// The last `count` lines of `text` that are not blank.
std::string last_lines(const std::string& text, size_t count);

class Processes {
 public:
  Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();  // kills the children that still run

  // Runs `body` in a child, whose exit code it returns. `timeout`: Duration::max() for none.
  // False when the system cannot start another process.
  bool start(size_t id, const std::function<int()>& body, Duration timeout);
  size_t running() const;
  // The next child that has ended, with its id. None after 200 ms, so that the caller can draw a
  // progress bar, or at SIGINT or SIGTERM.
  std::optional<std::pair<size_t, Outcome>> wait();
  // Whether SIGINT or SIGTERM has arrived.
  static bool interrupted() { return perf::Interrupt::asked(); }

 private:
  struct Child;

  perf::Interrupt interrupt_{perf::Interrupt::Second::kIgnored};  // the children must be killed
  std::vector<Child> children_;
};

// For start(): executes a program, found along PATH, with these variables ("NAME=value") in
// addition to the inherited ones.
std::function<int()> command_body(std::vector<std::string> command,
                                  std::vector<std::string> environment);

}  // namespace pacecar::ab
