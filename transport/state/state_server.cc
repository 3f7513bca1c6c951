#include "transport/state/state_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr Duration kAnswerLimit = Duration::from_s(2);
constexpr int kPauseMs = 10;  // Between two callers. Making a page takes a small part of this time.
// A caller that has sent no request within this time gets the first page.
constexpr int kSilenceMs = 100;
constexpr size_t kMaxRequest = 4096;

struct StateRequest {
  std::string_view path;  // empty: unknown request
  bool headers = false;   // the answer must have HTTP headers
};

// Parses "GET PATH" and the end of the line (HTTP 0.9), or "GET PATH HTTP/1.1" and so on. `text` is
// untrusted; the result points into it.
StateRequest parse(std::string_view text) {
  constexpr std::string_view kGet = "GET ";
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  if (!line.starts_with(kGet)) return {};
  line.remove_prefix(kGet.size());
  const size_t end = line.find(' ');
  if (end == std::string_view::npos) return {.path = line};
  const std::string_view version = line.substr(end + 1);
  if (!version.starts_with("HTTP/1.")) return {};
  return {.path = line.substr(0, end), .headers = true};
}

bool may_ask(const FileDescriptor& caller) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(caller.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

std::string with_headers(int status, std::string_view reason, std::string_view type,
                         std::string_view body) {
  return fmt::format(
      "HTTP/1.0 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, reason, type, body.size(), body);
}

tl::unexpected<Error> cannot(std::string_view what, int code) {
  return fail(ErrorCode::kSystem, fmt::format("cannot make {} ({}): raise the limits (ulimit -a)",
                                              what, std::strerror(code)));
}

}  // namespace

Result<std::unique_ptr<StateServer>> StateServer::open(StateDirectory directory, StatePages pages) {
  directory.remove_stale();
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return cannot("an eventfd", errno);
  ASSIGN_OR_RETURN(auto listening, directory.listen());
  std::unique_ptr<StateServer> server(new StateServer(std::move(directory), std::move(listening),
                                                      std::move(stop), std::move(pages)));
  try {
    server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  } catch (const std::system_error& error) {
    return cannot("a thread", error.code().value());
  }
  return server;
}

StateServer::StateServer(StateDirectory directory, StateDirectory::Listening listening,
                         FileDescriptor stop, StatePages pages)
    : directory_(std::move(directory)),
      listening_(std::move(listening)),
      stop_(std::move(stop)),
      pages_(std::move(pages)) {}

// In a forked child the thread does not run, and the socket's name belongs to the parent.
StateServer::~StateServer() {
  if (getpid() != owner_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  directory_.remove(listening_.name);
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void StateServer::serve() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // the application gets all signals
  pthread_setname_np(pthread_self(), "pacecar-state");
  while (wait_for(listening_.socket.get(), POLLIN, -1)) {
    {
      const FileDescriptor caller(
          accept4(listening_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (caller && may_ask(caller)) answer(caller);
    }
    wait_for(-1, 0, kPauseMs);
  }
}

void StateServer::answer(const FileDescriptor& caller) const {
  const TimeLimit time(kAnswerLimit);
  const std::string text = response(first_line(caller, time));
  std::string_view left = text;
  while (!left.empty() && wait_for(caller.get(), POLLOUT, time.left_ms())) {
    const ssize_t sent = send(caller.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
    if (sent > 0) left.remove_prefix(static_cast<size_t>(sent));
  }
  // Reads the rest of the request: closing with unread bytes would reset the connection.
  std::array<char, kMaxRequest> rest;
  while (recv(caller.get(), rest.data(), rest.size(), MSG_DONTWAIT) > 0 && time.left_ms() > 0) {
  }
}

// The caller's bytes, at least up to the end of the first line; empty for a silent caller.
std::string StateServer::first_line(const FileDescriptor& caller, const TimeLimit& time) const {
  std::array<char, kMaxRequest> bytes;
  size_t size = 0;
  while (size < bytes.size() &&
         wait_for(caller.get(), POLLIN, size == 0 ? kSilenceMs : time.left_ms())) {
    const ssize_t more = recv(caller.get(), bytes.data() + size, bytes.size() - size, MSG_DONTWAIT);
    if (more < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (more <= 0) break;
    size += static_cast<size_t>(more);
    if (std::memchr(bytes.data(), '\n', size) != nullptr) break;
  }
  return {bytes.data(), size};
}

std::string StateServer::response(std::string_view text) const {
  const StateRequest request = parse(text);
  const auto named = [&request](const StatePage& page) { return page.path == request.path; };
  const auto found =
      text.empty() ? pages_.begin() : std::find_if(pages_.begin(), pages_.end(), named);
  if (found != pages_.end()) {
    std::string body = found->make();
    return request.headers ? with_headers(200, "OK", found->type, body) : body;
  }
  std::string sentence = "There is no such page: send GET and one of";
  for (const StatePage& page : pages_) sentence += fmt::format(" {}", page.path);
  sentence += ".\n";
  return request.headers ? with_headers(404, "Not Found", "text/plain", sentence) : sentence;
}

bool StateServer::wait_for(int fd, short events, int limit_ms) const {
  std::array<pollfd, 2> waiting{pollfd{stop_.get(), POLLIN, 0}, pollfd{fd, events, 0}};
  const int ready = poll(waiting.data(), waiting.size(), limit_ms);
  return ready > 0 && waiting[0].revents == 0;
}

}  // namespace pacecar
