// A process of this host with pipes to it. It leads a process group of its own, so that Ctrl-C in a
// terminal is for its parent alone, and ends with its parent.
//
// Thread rule: a child belongs to one thread, which outlives it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

class Child {
 public:
  struct Wiring {
    bool input = false;  // a pipe; else nothing to read
    int kept = -1;       // a descriptor that it inherits under its number
  };

  // Found along PATH. Reading does not block. Errors: kNotFound (no such program, or not to be
  // executed), kSystem.
  static Result<Child> start(const std::vector<std::string>& command, const Wiring& wiring);

  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) noexcept = default;

  const FileDescriptor& input() const { return input_; }
  const FileDescriptor& output() const { return output_; }
  const FileDescriptor& errors() const { return errors_; }
  void close_input() { input_ = FileDescriptor(); }

  // To the whole group.
  void signal(int number) const;
  // The status of waitpid() once it has ended.
  std::optional<int> ended();
  int wait();
  // SIGTERM, and SIGKILL after `grace_ms`.
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
// Closed in programs that are executed. Errors: kSystem.
Result<Pipe> make_pipe();

// Appends what is there; false at the end. Does not block on a child's descriptors.
bool read_some(const FileDescriptor& from, std::string& to);

// "exit 3", "signal 9".
std::string how_ended(int status);
// The last line of what a program complained, printable, cut to what a sentence can take.
std::string last_complaint(const std::string& text);

}  // namespace pacecar::hosts
