// A process of this host with pipes to it, and the protocol of agents over pipes. The process leads
// a process group of its own, so that Ctrl-C in a terminal reaches its parent alone, and it ends
// with its parent.
//
// Thread rule: a child belongs to one thread, which outlives it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

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

// The protocol between `pacecar agent` on a host ("there") and the command that has started it
// ("here"): JSON objects, one per line, over the agent's standard input and output.
//
//   here: hello {protocol, release, environment}     there: welcome {protocol, release, machine}
//   here: run {id, arguments, announces}             there: serving {id, address, port}, if it
//                                                           announces; then ended {id, code,
//                                                           output, errors}
//   here: stop {id}                                  there: ended
//   here: alive                                      no answer
//
// The agent ends, with all that it has started, when its standard input ends, or when it has
// received nothing for kSilence, because a broken network does not report the end.
inline constexpr uint64_t kAgentProtocol = 1;
inline constexpr Duration kSilence = Duration::from_s(300);
inline constexpr Duration kAlive = Duration::from_s(30);  // how often `alive` is sent
inline constexpr int kGraceMs = 2000;                     // from stop to kill
inline constexpr size_t kMaxAgentLine = 64U << 20;

// Removes the whole lines from `text` and calls take(line) for each, without its end, as long as it
// returns true. Returns false if it has not, or if `text` is longer than kMaxAgentLine.
bool take_lines(std::string& text, const std::function<bool(std::string_view line)>& take);

// "exit 3", "signal 9".
std::string how_ended(int status);
// The last line of a program's errors, printable and cut to a length that fits a sentence.
std::string last_line_of_errors(const std::string& text);

}  // namespace pacecar::hosts
