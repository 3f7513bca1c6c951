#include "bench/hosts/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "bench/hosts/agent_protocol.h"
#include "transport/base/printable.h"

namespace pacecar::hosts {
namespace {

constexpr size_t kMaxErrorLine = 300;

// Executes the program in the new process. Only system calls: other threads may hold any lock.
[[noreturn]] void become(char* const* words, const std::array<int, 3>& standard, int kept,
                         int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) ::signal(number, SIG_DFL);
  for (int i = 0; i < 3; ++i) dup2(standard[static_cast<size_t>(i)], i);
  if (kept >= 0) fcntl(kept, F_SETFD, 0);
  execvp(words[0], words);
  const int why = errno;
  if (write(failure, &why, sizeof why) < 0) _exit(126);
  _exit(127);
}

tl::unexpected<Error> cannot_start(int why) {
  return fail(
      ErrorCode::kSystem,
      fmt::format("cannot start a process ({}): raise the limits (ulimit -a)", std::strerror(why)));
}

}  // namespace

Result<Pipe> make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return cannot_start(errno);
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Result<Child> Child::start(const std::vector<std::string>& command, const Wiring& wiring) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  auto input = make_pipe();
  auto output = make_pipe();
  auto errors = make_pipe();
  auto failure = make_pipe();
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input || !output || !errors || !failure || !nothing) return cannot_start(EMFILE);
  const std::array<int, 3> standard = {wiring.input ? input->read.get() : nothing.get(),
                                       output->write.get(), errors->write.get()};
  Child child;
  child.pid_ = fork();
  if (child.pid_ < 0) return cannot_start(errno);
  if (child.pid_ == 0) become(words.data(), standard, wiring.kept, failure->write.get());
  setpgid(child.pid_, child.pid_);  // in parent and child, as either may be first
  failure->write = FileDescriptor();
  int why = 0;
  if (read(failure->read.get(), &why, sizeof why) > 0) {
    child.wait();
    return fail(ErrorCode::kNotFound,
                fmt::format("cannot run {} ({})", printable(command[0]), std::strerror(why)));
  }
  for (const FileDescriptor* read : {&output->read, &errors->read}) {
    fcntl(read->get(), F_SETFL, O_NONBLOCK);
  }
  if (wiring.input) {
    fcntl(input->write.get(), F_SETFL, O_NONBLOCK);
    child.input_ = std::move(input->write);
  }
  child.output_ = std::move(output->read);
  child.errors_ = std::move(errors->read);
  return child;
}

void Child::signal(int number) const {
  if (!status_) kill(-pid_, number);
}

std::optional<int> Child::ended() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

int Child::wait() {
  int status = 0;
  while (!status_) {
    if (waitpid(pid_, &status, 0) == pid_ || errno != EINTR) status_ = status;
  }
  return *status_;
}

int Child::end(int grace_ms) {
  constexpr int kStepMs = 20;
  signal(SIGTERM);
  for (int waited = 0; waited < grace_ms && !ended(); waited += kStepMs) {
    poll(nullptr, 0, kStepMs);
  }
  signal(SIGKILL);
  return wait();
}

bool read_some(const FileDescriptor& from, std::string& to) {
  std::array<char, 1U << 16> part;
  const ssize_t size = read(from.get(), part.data(), part.size());
  if (size > 0) to.append(part.data(), static_cast<size_t>(size));
  return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

bool take_lines(std::string& text, const std::function<bool(std::string_view line)>& take) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (!take(std::string_view(text).substr(begin, end - begin))) return false;
  }
  text.erase(0, begin);
  return text.size() <= kMaxAgentLine;
}

std::string how_ended(int status) {
  return WIFEXITED(status) ? fmt::format("exit {}", WEXITSTATUS(status))
                           : fmt::format("signal {}", WTERMSIG(status));
}

std::string last_line_of_errors(const std::string& text) {
  std::string_view left = text;
  while (left.ends_with('\n') || left.ends_with('\r') || left.ends_with(' ')) left.remove_suffix(1);
  return printable(left.substr(left.rfind('\n') + 1)).substr(0, kMaxErrorLine);
}

}  // namespace pacecar::hosts
