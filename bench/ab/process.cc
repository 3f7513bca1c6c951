#include "bench/ab/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "transport/base/file_descriptor.h"

namespace pacecar::ab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProgressIntervalMs = 200;
constexpr int kCannotExecute = 127;    // as in shells
constexpr size_t kMaxKept = 64 << 20;  // of each stream

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Reads what the pipe holds; closes it at its end.
void drain(FileDescriptor& pipe, std::string& text) {
  std::array<char, 65536> buffer;
  while (pipe) {
    const ssize_t size = read(pipe.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      pipe = FileDescriptor();
      return;
    }
    const size_t room = kMaxKept - std::min(kMaxKept, text.size());
    text.append(buffer.data(), std::min(room, static_cast<size_t>(size)));
  }
}

[[noreturn]] void be_child(const std::function<int()>& body, int output, int errors) {
  setpgid(0, 0);  // a timeout also kills the processes that the child starts
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  const int code = body();
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

}  // namespace

struct Processes::Child {
  size_t id = 0;
  pid_t pid = 0;
  FileDescriptor handle;  // readable when the child has ended
  FileDescriptor output;
  FileDescriptor errors;
  Clock::time_point start;
  double limit_seconds = 0;
  Outcome outcome;
};

std::string Outcome::cause() const {
  if (timed_out) return fmt::format("ran past its limit of {:.3g} s", seconds);
  if (signal != 0) return fmt::format("was ended by signal {} ({})", signal, strsignal(signal));
  return fmt::format("ended with exit code {}", exit_code);
}

std::string last_lines(const std::string& text, size_t count) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
  const size_t more = lines.size() - std::min(lines.size(), count);
  return fmt::format("{}",
                     fmt::join(lines.begin() + static_cast<ptrdiff_t>(more), lines.end(), "\n"));
}

Processes::Processes() = default;

Processes::~Processes() {
  for (Child& child : children_) {
    kill(-child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
  }
}

size_t Processes::running() const { return children_.size(); }

bool Processes::start(size_t id, const std::function<int()>& body, Duration timeout) {
  std::array<int, 2> output{-1, -1};
  std::array<int, 2> errors{-1, -1};
  std::fflush(nullptr);  // else the child would print its copy of our buffers
  const bool piped = pipe2(output.data(), O_CLOEXEC) == 0 && pipe2(errors.data(), O_CLOEXEC) == 0;
  Child child;
  child.id = id;
  child.output = FileDescriptor(output[0]);
  child.errors = FileDescriptor(errors[0]);
  const FileDescriptor writes_output(output[1]);
  const FileDescriptor writes_errors(errors[1]);
  child.pid = piped ? fork() : -1;
  if (child.pid == 0) be_child(body, output[1], errors[1]);
  if (child.pid < 0) return false;
  setpgid(child.pid, child.pid);  // parent and child both set it, as either may be first
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  fcntl(errors[0], F_SETFL, O_NONBLOCK);
  child.handle = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  child.start = Clock::now();
  child.limit_seconds = timeout.seconds();
  children_.push_back(std::move(child));
  return true;
}

std::optional<std::pair<size_t, Outcome>> Processes::wait() {
  std::vector<pollfd> polled;
  for (const Child& child : children_) {
    for (const FileDescriptor* file : {&child.handle, &child.output, &child.errors}) {
      polled.push_back({file->get(), POLLIN, 0});
    }
  }
  poll(polled.data(), polled.size(), kProgressIntervalMs);
  for (Child& child : children_) {
    drain(child.output, child.outcome.output);
    drain(child.errors, child.outcome.errors);
    if (child.outcome.timed_out || seconds_since(child.start) < child.limit_seconds) continue;
    child.outcome.timed_out = true;
    child.outcome.seconds = child.limit_seconds;
    kill(-child.pid, SIGKILL);
  }
  for (auto child = children_.begin(); child != children_.end(); ++child) {
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(child->pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid != child->pid) continue;
    kill(-child->pid, SIGKILL);  // processes that it left must not disturb the next run
    int status = 0;
    waitpid(child->pid, &status, 0);
    Outcome outcome = std::move(child->outcome);
    drain(child->output, outcome.output);
    drain(child->errors, outcome.errors);
    if (!outcome.timed_out) outcome.seconds = seconds_since(child->start);
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    const size_t id = child->id;
    children_.erase(child);
    return std::pair(id, std::move(outcome));
  }
  return std::nullopt;
}

std::function<int()> command_body(std::vector<std::string> command,
                                  std::vector<std::string> environment) {
  return [command = std::move(command), environment = std::move(environment)]() {
    for (const std::string& setting : environment) {
      const size_t equals = setting.find('=');
      setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
    return kCannotExecute;
  };
}

}  // namespace pacecar::ab
