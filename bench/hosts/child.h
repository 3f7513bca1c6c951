// A process of this host with pipes to it. It leads a process group of its own, so that Ctrl-C in a
// terminal reaches its parent alone, and it ends with its parent.
//
// Thread rule: a child belongs to one thread, which outlives it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

class Child {
 public:
  struct Wiring {
    bool input = false;  // its standard input is a pipe, otherwise /dev/null
    int kept = -1;       // a descriptor that it inherits
  };

  // Starts a program, found along PATH. Reading its pipes does not block. Errors: kNotFound (there
  // is no such program, or it cannot be executed), kSystem.
  static Result<Child> start(const std::vector<std::string>& command, const Wiring& wiring);

  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) noexcept = default;

  const FileDescriptor& input() const { return input_; }
  const FileDescriptor& output() const { return output_; }
  const FileDescriptor& errors() const { return errors_; }
  void close_input() { input_ = FileDescriptor(); }

  // Sends a signal to its whole group.
  void signal(int number) const;
  // The status of waitpid() once it has ended.
  std::optional<int> ended();
  int wait();
  // Ends it by SIGTERM, and by SIGKILL after `grace_ms`. Returns its status.
  int end(int grace_ms);

 private:
  Child() = default;

  pid_t pid_ = 0;
  std::optional<int> status_;
  FileDescriptor input_;
  FileDescriptor output_;
  FileDescriptor errors_;
};

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
// Both ends are closed on exec. Errors: kSystem.
Result<Pipe> make_pipe();

// Appends the bytes that are there; false at the end. Does not block on a child's descriptors.
bool read_some(const FileDescriptor& from, std::string& to);

// Removes the whole lines from `text` and calls take(line) for each, without its end, as long as it
// returns true. Returns false if it has not, or if `text` is longer than kMaxAgentLine.
bool take_lines(std::string& text, const std::function<bool(std::string_view line)>& take);

// "exit 3", "signal 9".
std::string how_ended(int status);
// The last line of a program's errors, printable and cut to a length that fits a sentence.
std::string last_line_of_errors(const std::string& text);

}  // namespace pacecar::hosts
