#include "transport/state/ask.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>

#include "transport/state/time_limit.h"

namespace pacecar {
namespace {

constexpr size_t kAtOnce = 256;  // A thread and a file each: below the default limit of open files.
// Before the next attempt to connect to a process whose backlog is full.
constexpr int kAgainMs = 10;

tl::unexpected<Error> silent() {
  return fail(ErrorCode::kPeer, "it does not answer: it is stopped, or stuck");
}

// All that the process sends until it closes the connection.
Result<std::string> receive_all(int fd, size_t max_bytes, const TimeLimit& time) {
  std::string text;
  std::array<char, 1U << 16> part;
  while (text.size() <= max_bytes) {
    pollfd waiting{fd, POLLIN, 0};
    const int left_ms = time.left_ms();
    if (left_ms == 0 || poll(&waiting, 1, left_ms) == 0) return silent();
    const ssize_t size = recv(fd, part.data(), part.size(), MSG_DONTWAIT);
    // ECONNRESET: the process has answered without reading the request, as other versions may.
    if (size == 0 || (size < 0 && errno == ECONNRESET)) {
      if (!text.empty()) return text;
      return fail(ErrorCode::kNotFound, "it ended before it answered");
    }
    if (size > 0) {
      text.append(part.data(), static_cast<size_t>(size));
    } else if (errno != EINTR && errno != EAGAIN) {
      return fail(ErrorCode::kPeer, "it cannot be read: its socket has failed");
    }
  }
  return fail(ErrorCode::kPeer, "its answer has no end");
}

Result<std::string> ask(const StatePlace& place, const StateQuestion& question,
                        const TimeLimit& time) {
  auto socket = place.directory->connect(place.name);
  while (socket && !*socket) {
    if (time.left_ms() == 0) return silent();
    poll(nullptr, 0, kAgainMs);
    socket = place.directory->connect(place.name);
  }
  if (!socket) return tl::unexpected(socket.error());
  // A new socket has room for the line. A failure is ignored, as it may have answered already.
  const std::string line = fmt::format("GET {}\n", question.page);
  static_cast<void>(send((*socket)->get(), line.data(), line.size(), MSG_NOSIGNAL));
  return receive_all((*socket)->get(), question.max_bytes, time);
}

}  // namespace

std::vector<Result<std::string>> ask_all(std::span<const StatePlace> places,
                                         const StateQuestion& question) {
  std::vector<Result<std::string>> answers;
  while (!places.empty()) {
    const auto batch = places.first(std::min(places.size(), kAtOnce));
    const TimeLimit time(question.limit);
    std::vector<std::future<Result<std::string>>> asked;
    for (const StatePlace& place : batch) {
      asked.push_back(std::async([&] { return ask(place, question, time); }));
    }
    for (auto& one : asked) answers.push_back(one.get());
    places = places.subspan(batch.size());
  }
  return answers;
}

}  // namespace pacecar
