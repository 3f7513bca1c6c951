#include "bench/ab/process.h"

#include <fmt/format.h>
#include <poll.h>

#include <csignal>
#include <cstring>
#include <vector>

namespace pacecar::ab {
namespace {

constexpr int kProgressIntervalMs = 200;

}  // namespace

std::string Outcome::cause() const {
  if (timed_out) return fmt::format("ran past its limit of {:.3g} s", seconds);
  if (status.signal == 0) return fmt::format("ended with exit code {}", status.code);
  return fmt::format("was ended by signal {} ({})", status.signal, strsignal(status.signal));
}

Processes::~Processes() {
  for (Running& one : children_) {
    one.child.signal(SIGKILL);
    one.child.wait();
  }
}

void Processes::add(size_t id, cli::Child child, Duration timeout) {
  children_.push_back({.id = id, .child = std::move(child), .timeout = timeout});
}

std::optional<std::pair<size_t, Outcome>> Processes::wait() {
  std::vector<pollfd> polled;
  for (const Running& one : children_) one.child.add_to(polled);
  poll(polled.data(), polled.size(), kProgressIntervalMs);
  for (auto one = children_.begin(); one != children_.end(); ++one) {
    const auto status = one->child.ended();  // before its last output is read
    one->child.read();
    double seconds = std::chrono::duration<double>(Clock::now() - one->start).count();
    if (!status) {
      if (one->timed_out || seconds < one->timeout.seconds()) continue;
      one->timed_out = true;
      one->child.signal(SIGKILL);
      continue;
    }
    if (one->timed_out) seconds = one->timeout.seconds();
    std::pair ended(one->id, Outcome{*status, one->timed_out, std::move(one->child.output),
                                     std::move(one->child.errors), seconds});
    children_.erase(one);
    return ended;
  }
  return std::nullopt;
}

}  // namespace pacecar::ab
