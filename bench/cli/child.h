// A child process whose output is kept. It leads a process group of its own, so that Ctrl-C in a
// terminal reaches its parent alone, and it ends with its parent. Thread rule: a child belongs to
// one thread, which outlives it.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar::cli {

// Appends what the pipe holds, as long as `text` has less than 64 MiB. Closes it at its end.
void read_pipe(FileDescriptor& pipe, std::string& text);

struct ExitStatus {
  int code = 0;
  int signal = 0;  // that ended it; 0: none

  bool ok() const { return code == 0 && signal == 0; }
  // "exit 3", "signal 9".
  std::string text() const;
};

class Child {
 public:
  struct Wiring {
    bool input = false;                    // its standard input is a pipe, otherwise /dev/null
    std::vector<std::string> environment;  // "NAME=value", in addition
  };

  // Executes a program, found along PATH. Errors: kNotFound (there is no such program, or it cannot
  // be executed), kSystem.
  static Result<Child> execute(const std::vector<std::string>& command, const Wiring& wiring);
  // Runs `body` in a copy of this process, which may have no other threads; it ends with the exit
  // code that `body` returns. Errors: kSystem.
  static Result<Child> run(const std::function<int()>& body);

  // Before a child is destroyed one of ended(), wait() and end() must have returned its status.
  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) noexcept = default;

  // Adds three entries: of its end, its output and its errors.
  void add_to(std::vector<pollfd>& polled) const;
  // Adds to `output` and `errors` what has been written, by read_pipe(). Does not block.
  void read();
  // It may still write.
  bool output_open() const { return static_cast<bool>(output_); }

  const FileDescriptor& input() const { return input_; }
  void close_input() { input_ = FileDescriptor(); }

  // Sends a signal to its whole group.
  void signal(int number) const;
  // The status, if it has ended; then the processes that it has left are killed.
  std::optional<ExitStatus> ended();
  ExitStatus wait();
  // Ends its group by SIGTERM, and by SIGKILL after `grace_ms`.
  ExitStatus end(int grace_ms);

  std::string output;
  std::string errors;

 private:
  Child() = default;
  static Result<Child> start(const std::function<int()>& body, const Wiring& wiring);
  std::optional<ExitStatus> reap(int flags);

  pid_t pid_ = 0;
  std::optional<ExitStatus> status_;
  FileDescriptor handle_;  // readable when it has ended
  FileDescriptor input_;
  FileDescriptor output_;
  FileDescriptor errors_;
};

// The last `count` lines that are not blank.
std::string last_lines(const std::string& text, size_t count);

}  // namespace pacecar::cli
