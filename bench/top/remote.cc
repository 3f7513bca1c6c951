#include "bench/top/remote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"

extern char** environ;

namespace pacecar::top {
namespace {

constexpr size_t kMaxLine = 64U << 20;
constexpr size_t kMaxComplaint = 200;
constexpr int kLookMs = 100;  // at the stop token

struct Child {
  pid_t pid = 0;
  FileDescriptor output;
  FileDescriptor errors;
};

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

std::optional<Pipe> make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Result<Child> start(const std::vector<std::string>& command) {
  auto output = make_pipe();
  auto errors = make_pipe();
  if (!output || !errors) {
    return fail(ErrorCode::kSystem, "cannot make a pipe: raise the limits (ulimit -a)");
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output->write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors->write.get(), STDERR_FILENO);
  Child child{.pid = 0, .output = std::move(output->read), .errors = std::move(errors->read)};
  const int failed =
      posix_spawnp(&child.pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return fail(ErrorCode::kSystem, fmt::format("cannot run {} ({}): install it, or name another "
                                                "by --ssh",
                                                command[0], std::strerror(failed)));
  }
  return child;
}

// What is there; false at the end.
bool read_some(const FileDescriptor& from, std::string& to) {
  std::array<char, 1U << 16> part;
  const ssize_t size = read(from.get(), part.data(), part.size());
  if (size > 0) to.append(part.data(), static_cast<size_t>(size));
  return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

// Posts the whole lines; a sentence where one is no evidence.
std::optional<std::string> take_lines(std::string& text,
                                      const std::function<void(doctor::Evidence)>& post) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    doctor::Evidence evidence;
    const auto line = std::string_view(text).substr(begin, end - begin);
    if (auto added = doctor::add_evidence(line, evidence); !added) {
      return "what it says is not from pacecar top: " + added.error().message;
    }
    post(std::move(evidence));
  }
  text.erase(0, begin);
  if (text.size() > kMaxLine) return "what it says has no end: run the same version there";
  return std::nullopt;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1)).substr(0, kMaxComplaint);
}

std::string why_ended(const std::vector<std::string>& command, int status,
                      const std::string& complaint) {
  const std::string how = WIFEXITED(status) ? fmt::format("exit {}", WEXITSTATUS(status))
                                            : fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("'{}' ended ({}{}{}): does it work by hand?", fmt::join(command, " "), how,
                     complaint.empty() ? "" : ", ", complaint);
}

}  // namespace

Result<void> check_host_name(const std::string& host) {
  const bool word = std::ranges::all_of(host, [](char c) { return c > ' ' && c <= '~'; });
  if (!host.empty() && host[0] != '-' && word) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no host: write --hosts node1,node2", printable(host)));
}

std::string watch_remote(const std::vector<std::string>& command, const std::stop_token& stop,
                         const std::function<void(doctor::Evidence)>& post) {
  const auto child = start(command);
  if (!child) return child.error().message;
  std::string text;
  std::string complaints;
  std::optional<std::string> wrong;
  bool speaks = true;
  bool complains = true;
  while (speaks && !wrong && !stop.stop_requested()) {
    std::array<pollfd, 2> waiting{pollfd{child->output.get(), POLLIN, 0},
                                  pollfd{complains ? child->errors.get() : -1, POLLIN, 0}};
    poll(waiting.data(), waiting.size(), kLookMs);
    if (waiting[1].revents != 0) complains = read_some(child->errors, complaints);
    if (complaints.size() > kMaxLine) complaints.erase(0, complaints.size() - kMaxComplaint);
    if (waiting[0].revents != 0) {
      speaks = read_some(child->output, text);
      wrong = take_lines(text, post);
    }
  }
  if (speaks) kill(child->pid, SIGTERM);
  if (!speaks && complains) {
    while (read_some(child->errors, complaints) && complaints.size() < kMaxLine) {
    }
  }
  int status = 0;
  while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  return wrong ? *wrong : why_ended(command, status, last_line(complaints));
}

}  // namespace pacecar::top
