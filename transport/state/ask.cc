#include "transport/state/ask.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "transport/state/time_limit.h"

namespace pacecar {
namespace {

// Below the default limit of open files.
constexpr size_t kAtOnce = 256;
// Before the next attempt to connect to a process whose backlog is full.
constexpr int kAgainMs = 10;

class Asking {
 public:
  Asking(const StatePlace& place, const StateQuestion& question)
      : place_(place), question_(question) {}

  bool done() const { return answer_.has_value(); }
  bool connected() const { return socket_.has_value(); }
  int fd() const { return socket_ ? socket_->get() : -1; }

  void connect() {
    auto socket = place_.directory->connect(place_.name);
    if (!socket) {
      answer_ = tl::unexpected(socket.error());
      return;
    }
    if (!*socket) return;
    socket_ = std::move(**socket);
    // A new socket has room for the line. A failure is ignored, as the process may have answered
    // already.
    const std::string line = fmt::format("GET {}\n", question_.page);
    static_cast<void>(send(fd(), line.data(), line.size(), MSG_NOSIGNAL));
  }

  void receive() {
    std::array<char, 1U << 16> part;
    const ssize_t size = recv(fd(), part.data(), part.size(), MSG_DONTWAIT);
    // ECONNRESET: the process has answered without reading the request, as other versions may.
    const bool over = size == 0 || (size < 0 && errno == ECONNRESET);
    if (over && text_.empty()) {
      answer_ = fail(ErrorCode::kNotFound, "it ended before it answered");
    } else if (over) {
      answer_ = std::move(text_);
    } else if (size < 0) {
      if (errno != EINTR && errno != EAGAIN) end("it cannot be read: its socket has failed");
    } else {
      text_.append(part.data(), static_cast<size_t>(size));
      if (text_.size() > question_.max_bytes) end("its answer has no end");
    }
  }

  Result<std::string> take() {
    if (!answer_) end("it does not answer: it is stopped, or stuck");
    return std::move(*answer_);
  }

 private:
  void end(const char* why) { answer_ = fail(ErrorCode::kPeer, why); }

  const StatePlace& place_;
  const StateQuestion& question_;
  std::optional<FileDescriptor> socket_;
  std::string text_;
  std::optional<Result<std::string>> answer_;
};

void ask(std::span<Asking> all, Duration limit) {
  const TimeLimit time(limit);
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<Asking*> whose;
    int wait_ms = time.left_ms();
    for (Asking& one : all) {
      if (!one.done() && !one.connected()) one.connect();
      if (one.done()) continue;
      if (one.connected()) {
        waiting.push_back({one.fd(), POLLIN, 0});
        whose.push_back(&one);
      } else {
        wait_ms = std::min(wait_ms, kAgainMs);
      }
    }
    const bool all_done = std::ranges::all_of(all, [](const Asking& one) { return one.done(); });
    if (all_done) return;
    poll(waiting.data(), waiting.size(), wait_ms);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) whose[i]->receive();
    }
    if (wait_ms == 0) return;  // the time was over, and what had arrived is read
  }
}

}  // namespace

std::vector<Result<std::string>> ask_all(std::span<const StatePlace> places,
                                         const StateQuestion& question) {
  std::vector<Result<std::string>> answers;
  while (!places.empty()) {
    const auto batch = places.first(std::min(places.size(), kAtOnce));
    std::vector<Asking> asking;
    asking.reserve(batch.size());
    for (const StatePlace& place : batch) asking.emplace_back(place, question);
    ask(asking, question.limit);
    for (Asking& one : asking) answers.push_back(one.take());
    places = places.subspan(batch.size());
  }
  return answers;
}

}  // namespace pacecar
