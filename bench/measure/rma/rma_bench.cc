// rma_bench: measures one-sided operations over a NIC: bandwidth of puts, round trips of a signal
// and of a put with a signal, between two processes that it forks. Prints {"metrics": ...};
// bench/plans/live_rma.toml compares them with messages.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/must.h"
#include "transport/rma/group.h"

namespace pacecar {
namespace {

using Clock = std::chrono::steady_clock;

struct Plan {
  std::string nic = "soft:udp:lo";
  size_t size = 1 << 20;
  size_t in_flight = 8;
  size_t puts = 4000;
  size_t trips = 5000;
};

// A socket to the other process.
struct Pipe {
  const int fd;
  const int rank;  // of this process

  template <typename T>
  T swap(const T& own) {
    T other;
    const bool written = write(fd, &own, sizeof own) == sizeof own;
    if (!written || recv(fd, &other, sizeof other, MSG_WAITALL) != sizeof other) {
      give_up("the other process is gone");
    }
    return other;
  }
  void meet() { swap('m'); }
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Windows of one group.
struct Windows {
  rma::Group& group;
  rma::SharedWindow* data;
  rma::SharedWindow* words;
  std::atomic_ref<uint64_t> word;  // the peer's signals add to it

  rma::Operation* put(size_t peer, size_t offset, size_t bytes, uint64_t signal) {
    const rma::Location place{data, offset};
    const std::optional<rma::Signal> added =
        signal == 0 ? std::nullopt : std::optional(rma::Signal{{words, 0}, signal});
    return must(group.put(peer, place, bytes, place, added));
  }
  void finish(rma::Operation* operation) {
    while (!must(group.test(operation))) {
    }
  }
  void await(uint64_t value) {
    while (word.load() < value) group.progress();
  }
};

// Gb/s, measured at rank 0.
double stream_puts(const Plan& plan, Pipe& pipe, Windows& windows) {
  const uint64_t goal = windows.word.load() + 1;
  pipe.meet();
  if (pipe.rank == 1) {
    windows.await(goal);
    return 0;
  }
  std::vector<rma::Operation*> operations(plan.in_flight, nullptr);
  const auto begin = Clock::now();
  for (size_t i = 0; i < plan.puts + plan.in_flight; ++i) {
    const size_t slot = i % plan.in_flight;
    if (operations[slot] != nullptr) windows.finish(std::exchange(operations[slot], nullptr));
    if (i < plan.puts) operations[slot] = windows.put(1, slot * plan.size, plan.size, 0);
  }
  const double seconds = seconds_since(begin);
  windows.finish(windows.put(1, 0, 0, 1));
  return static_cast<double>(plan.puts * plan.size) * 8e-9 / seconds;
}

// The median round trip of a signal after a put of `bytes`, in us.
double round_trip(const Plan& plan, Pipe& pipe, Windows& windows, size_t bytes) {
  const size_t peer = pipe.rank == 0 ? 1 : 0;
  uint64_t goal = windows.word.load();
  std::vector<double> times;
  pipe.meet();
  for (size_t i = 0; i < plan.trips; ++i) {
    rma::Operation* operation = nullptr;
    const auto start = Clock::now();
    if (pipe.rank == 0) operation = windows.put(peer, 0, bytes, 1);
    windows.await(++goal);
    if (pipe.rank == 1) operation = windows.put(peer, 0, bytes, 1);
    times.push_back(seconds_since(start) * 1e6);
    windows.finish(operation);
  }
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  return *middle;
}

void measure(const Plan& plan, Pipe pipe) {
  std::shared_ptr<Context> context =
      must(Context::open({.settings = {{"PACECAR_NICS", plan.nic}}, .defaults = {}, .log = {}}));
  const auto listener = must(context->listen(0));
  std::array<Handle, 2> handles;
  handles[static_cast<size_t>(pipe.rank)] = listener->handle();
  handles[static_cast<size_t>(1 - pipe.rank)] = pipe.swap(listener->handle());
  const auto group =
      must(rma::Group::join(context, 0, *listener, handles, static_cast<size_t>(pipe.rank), 0, {}));
  std::vector<uint8_t> data(plan.size * plan.in_flight);
  alignas(64) uint64_t word = 0;
  Windows windows{*group, must(group->share({.address = data.data(), .length = data.size()})),
                  must(group->share({.address = &word, .length = sizeof word})),
                  std::atomic_ref(word)};

  const double gbps = stream_puts(plan, pipe, windows);
  const double signal_us = round_trip(plan, pipe, windows, 0);
  const double put_us = round_trip(plan, pipe, windows, 8);
  if (pipe.rank == 0) {
    fmt::print(
        R"({{"metrics": {{"gbps": {:.3f}, "rtt_median_us": {:.2f}, "rtt_signal_us": {:.2f}}}}})"
        "\n",
        gbps, put_us, signal_us);
  }
  pipe.meet();
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  pacecar::Plan plan;
  CLI::App app("Measures one-sided operations: puts and signals.");
  app.option_defaults()->always_capture_default();
  app.add_option("-d,--nic", plan.nic, "as in PACECAR_NICS");
  app.add_option("-s,--size", plan.size, "bytes of a put");
  app.add_option("-t,--in-flight", plan.in_flight, "puts in flight");
  app.add_option("-n,--puts", plan.puts, "puts of the stream")->check(CLI::PositiveNumber);
  app.add_option("--trips", plan.trips, "round trips in each ping-pong")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) pacecar::give_up("no socket pair");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    pacecar::measure(plan, {ends[1], 1});
    return 0;
  }
  close(ends[1]);
  pacecar::measure(plan, {ends[0], 0});
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
