#include "bench/cli/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "transport/base/invalid.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"

namespace pacecar::cli {
namespace {

constexpr int kCannotExecute = 127;  // as in shells
constexpr size_t kPartBytes = 64U << 10;
constexpr size_t kMaxKept = 64U << 20;  // of each stream

tl::unexpected<Error> cannot_start(int why) {
  return fail(ErrorCode::kSystem, "cannot start a process ({}): raise the limits (ulimit -a)",
              std::strerror(why));
}

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// Both ends are closed on exec.
Result<Pipe> make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return cannot_start(errno);
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Does not return if it can. Without variables it makes system calls only: other threads of the
// parent may have held any lock.
int become(char* const* words, const std::vector<std::string>& environment, int failure) {
  for (const std::string& setting : environment) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
  execvp(words[0], words);
  const int why = errno;
  _exit(write(failure, &why, sizeof why) < 0 ? 126 : kCannotExecute);
}

}  // namespace

void read_pipe(FileDescriptor& pipe, std::string& text) {
  if (!pipe) return;
  std::array<char, kPartBytes> part;
  const ssize_t size = read(pipe.get(), part.data(), part.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) {
    pipe = FileDescriptor();
    return;
  }
  const size_t room = kMaxKept - std::min(kMaxKept, text.size());
  text.append(part.data(), std::min(room, static_cast<size_t>(size)));
}

std::string ExitStatus::text() const {
  return signal == 0 ? fmt::format("exit {}", code) : fmt::format("signal {}", signal);
}

Result<Child> Child::start(const std::function<int()>& body, const Wiring& wiring) {
  std::fflush(nullptr);  // else the child would print its copy of our buffers
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) return cannot_start(errno);
  ASSIGN_OR_RETURN(Pipe input, make_pipe());
  ASSIGN_OR_RETURN(Pipe output, make_pipe());
  ASSIGN_OR_RETURN(Pipe errors, make_pipe());
  for (const FileDescriptor* ours : {&input.write, &output.read, &errors.read}) {
    fcntl(ours->get(), F_SETFL, O_NONBLOCK);
  }
  Child child;
  child.pid_ = fork();
  if (child.pid_ < 0) return cannot_start(errno);
  if (child.pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) ::signal(number, SIG_DFL);
    dup2(wiring.input ? input.read.get() : nothing.get(), STDIN_FILENO);
    dup2(output.write.get(), STDOUT_FILENO);
    dup2(errors.write.get(), STDERR_FILENO);
    const int code = body();
    std::fflush(stdout);
    std::fflush(stderr);
    _exit(code);
  }
  setpgid(child.pid_, child.pid_);  // in parent and child, as either may be first
  child.handle_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
  child.output_ = std::move(output.read);
  child.errors_ = std::move(errors.read);
  if (wiring.input) child.input_ = std::move(input.write);
  return child;
}

Result<Child> Child::execute(const std::vector<std::string>& command, const Wiring& wiring) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ASSIGN_OR_RETURN(Pipe failure, make_pipe());
  ASSIGN_OR_RETURN(
      Child child,
      start([&] { return become(words.data(), wiring.environment, failure.write.get()); }, wiring));
  failure.write = FileDescriptor();
  int why = 0;
  if (::read(failure.read.get(), &why, sizeof why) <= 0) return child;
  child.wait();
  return fail(ErrorCode::kNotFound, "cannot run {} ({})", printable(command[0]),
              std::strerror(why));
}

Result<Child> Child::run(const std::function<int()>& body) { return start(body, {}); }

void Child::add_to(std::vector<pollfd>& polled) const {
  for (const FileDescriptor* one : {&handle_, &output_, &errors_}) {
    polled.push_back({one->get(), POLLIN, 0});
  }
}

void Child::read() {
  size_t before = 0;
  do {
    before = output.size() + errors.size();
    read_pipe(output_, output);
    read_pipe(errors_, errors);
  } while (status_ && output.size() + errors.size() > before);
}

void Child::signal(int number) const {
  if (!status_) kill(-pid_, number);
}

std::optional<ExitStatus> Child::reap(int flags) {
  if (status_) return status_;
  siginfo_t ended{};
  int failed = 0;
  do {
    failed = waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT | flags);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0 && ended.si_pid == 0) return std::nullopt;
  kill(-pid_, SIGKILL);  // what it has left; before its number is free for others
  int status = 0;
  waitpid(pid_, &status, 0);
  status_ = WIFEXITED(status) ? ExitStatus{.code = WEXITSTATUS(status)}
                              : ExitStatus{.signal = WTERMSIG(status)};
  return status_;
}

std::optional<ExitStatus> Child::ended() { return reap(WNOHANG); }

ExitStatus Child::wait() { return *reap(0); }

ExitStatus Child::end(int grace_ms) {
  signal(SIGTERM);
  pollfd handle{handle_.get(), POLLIN, 0};
  poll(&handle, 1, grace_ms);
  signal(SIGKILL);
  return wait();
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

}  // namespace pacecar::cli
