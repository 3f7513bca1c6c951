// Child processes: each runs a function, or a command, in a process of its own, so that a crash or
// a hang costs one run only; what it prints is kept.
// Thread rule: one thread, in a program that has no other threads (children go on with its copy).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/units.h"

namespace pacecar::ab {

struct Outcome {
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: it ended by itself
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
  ~Processes();  // ends what still runs

  // Runs `body` in a child, whose exit code it returns. `timeout`: Duration::max() for none.
  // False when the system gives no process.
  bool start(size_t id, const std::function<int()>& body, Duration timeout);
  size_t running() const;
  // The next child that has ended, with its id; none after a while, for a progress bar, or when
  // SIGINT or SIGTERM came.
  std::optional<std::pair<size_t, Outcome>> wait();
  // SIGINT or SIGTERM asked this program to end.
  static bool interrupted();

 private:
  struct Child;

  void read_all();
  void end_late_ones();

  std::vector<Child> children_;
};

// For start(): replaces the child by a program, found along PATH, with these variables set
// ("NAME=value") beside the inherited ones.
std::function<int()> command_body(std::vector<std::string> command,
                                  std::vector<std::string> environment);

}  // namespace pacecar::ab
