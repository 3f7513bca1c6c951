// rma_bench: compares one-sided operations with messages over the same NIC: bandwidth of puts and
// of messages, half a round trip of a signal, of a put with a signal and of a message. It forks two
// processes. Each round measures all in turn; ratios are taken within a round.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/nccl/spread.h"
#include "bench/perf/must.h"
#include "transport/rma/group.h"

namespace pacecar {
namespace {

using Clock = std::chrono::steady_clock;

struct Plan {
  std::string nic = "soft:udp:lo";
  size_t size = 1 << 20;
  size_t in_flight = 8;
  size_t messages = 4000;
  size_t trips = 5000;
  size_t rounds = 5;
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

// A connection in each direction, and registered memory for both.
class Messages {
 public:
  Messages(Context& context, Pipe& pipe, std::vector<uint8_t>& memory)
      : listener_(must(context.listen(0))), data_(memory.data()) {
    const Handle peer = pipe.swap(listener_->handle());
    const auto connecting = must(context.connect(0, peer));
    while (send_ == nullptr || receive_ == nullptr) {
      if (send_ == nullptr) send_ = must(connecting->poll());
      if (receive_ == nullptr) receive_ = must(listener_->accept());
    }
    memory_ = must(context.register_memory(0, memory.data(), memory.size()));
  }

  // Starts to send or to receive.
  Request* start(bool sends, size_t place, size_t size) {
    const ReceiveBuffer buffer{data_ + place, size, 0, memory_};
    for (;;) {
      Request* const request = must(sends ? send_->isend(data_ + place, size, 0, memory_)
                                          : receive_->irecv({&buffer, 1}));
      if (request != nullptr) return request;
    }
  }
  void finish(bool sends, Request* request) {
    while (!must(sends ? send_->test(request) : receive_->test(request)).done) {
    }
  }

 private:
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<SendConnection> send_;
  std::unique_ptr<ReceiveConnection> receive_;
  uint8_t* data_;
  const Memory* memory_;
};

// Gb/s of operations, so many of which are in flight: `start(place)` returns one, `finish` waits.
template <typename Start, typename Finish>
double stream(const Plan& plan, const Start& start, const Finish& finish) {
  std::vector<decltype(start(0))> operations(plan.in_flight, nullptr);
  const auto begin = Clock::now();
  for (size_t i = 0; i < plan.messages + plan.in_flight; ++i) {
    auto& operation = operations[i % plan.in_flight];
    if (operation != nullptr) finish(std::exchange(operation, nullptr));
    if (i < plan.messages) operation = start(i % plan.in_flight * plan.size);
  }
  return static_cast<double>(plan.messages * plan.size) * 8e-9 / seconds_since(begin);
}

// The median of half a round trip, in us: `send` begins a signal of this process, `await` returns
// when the other's has come, and `settle` ends what is not part of the time.
template <typename Send, typename Await, typename Settle>
double half_trip(const Plan& plan, Pipe& pipe, const Send& send, const Await& await,
                 const Settle& settle) {
  pipe.meet();
  std::vector<double> halves;
  for (size_t i = 0; i < plan.trips; ++i) {
    const auto start = Clock::now();
    if (pipe.rank == 0) send();
    await(i);
    if (pipe.rank == 1) send();
    halves.push_back(seconds_since(start) / 2 * 1e6);
    settle();
  }
  return nccl::spread_of(halves).median;
}

// Measured at the sender.
double stream_messages(const Plan& plan, Pipe& pipe, Messages& messages) {
  const bool sends = pipe.rank == 0;
  pipe.meet();
  return stream(
      plan, [&](size_t place) { return messages.start(sends, place, plan.size); },
      [&](Request* request) { messages.finish(sends, request); });
}

double half_trip_of_messages(const Plan& plan, Pipe& pipe, Messages& messages) {
  Request* receiving = messages.start(false, 64, 8);
  const auto await = [&](size_t trip) {
    messages.finish(false, receiving);
    if (trip + 1 < plan.trips) receiving = messages.start(false, 64, 8);
  };
  return half_trip(
      plan, pipe, [&] { messages.finish(true, messages.start(true, 0, 8)); }, await, [] {});
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

double stream_puts(const Plan& plan, Pipe& pipe, Windows& windows) {
  const uint64_t goal = windows.word.load() + 1;
  double rate = 0;
  pipe.meet();
  if (pipe.rank == 0) {
    rate = stream(
        plan, [&](size_t place) { return windows.put(1, place, plan.size, 0); },
        [&](rma::Operation* operation) { windows.finish(operation); });
    windows.finish(windows.put(1, 0, 0, 1));
  } else {
    windows.await(goal);
  }
  pipe.meet();
  return rate;
}

// Of a signal after a put of `bytes`.
double half_trip_of_signals(const Plan& plan, Pipe& pipe, Windows& windows, size_t bytes) {
  const size_t peer = pipe.rank == 0 ? 1 : 0;
  uint64_t goal = windows.word.load();
  rma::Operation* operation = nullptr;
  return half_trip(
      plan, pipe, [&] { operation = windows.put(peer, 0, bytes, 1); },
      [&](size_t) { windows.await(++goal); }, [&] { windows.finish(operation); });
}

struct Row {
  const char* name;
  size_t base;  // index of the row for the ratio
  std::vector<double> figures;
};

void print(const Row& row, const Row& base) {
  const auto spread = nccl::spread_of(row.figures);
  std::vector<double> ratios;
  for (size_t i = 0; i < row.figures.size(); ++i) {
    ratios.push_back(row.figures[i] / base.figures[i]);
  }
  const auto ratio = nccl::spread_of(ratios);
  fmt::print("{:<34} {:8.2f} ({:.2f} to {:.2f})  {:6.3f} ({:.3f} to {:.3f})\n", row.name,
             spread.median, spread.least, spread.most, ratio.median, ratio.least, ratio.most);
}

void measure(const Plan& plan, Pipe pipe) {
  std::shared_ptr<Context> context =
      must(Context::open({.settings = {{"PACECAR_NICS", plan.nic}}, .defaults = {}, .log = {}}));
  std::vector<uint8_t> memory(plan.size * plan.in_flight);
  std::vector<uint8_t> other(memory.size());
  Messages messages(*context, pipe, memory);

  const auto listener = must(context->listen(0));
  std::array<Handle, 2> handles;
  handles[static_cast<size_t>(pipe.rank)] = listener->handle();
  handles[static_cast<size_t>(1 - pipe.rank)] = pipe.swap(listener->handle());
  const auto group =
      must(rma::Group::join(context, 0, *listener, handles, static_cast<size_t>(pipe.rank), 0, {}));
  alignas(64) uint64_t word = 0;
  Windows windows{*group, must(group->share({.address = other.data(), .length = other.size()})),
                  must(group->share({.address = &word, .length = sizeof word})),
                  std::atomic_ref(word)};

  std::array<Row, 5> rows = {{{"messages, Gb/s", 0, {}},
                              {"puts, Gb/s", 0, {}},
                              {"message of 8 bytes, half trip us", 2, {}},
                              {"signal, half trip us", 2, {}},
                              {"put of 8 bytes, signal, half trip us", 2, {}}}};
  for (size_t round = 0; round < plan.rounds; ++round) {
    rows[0].figures.push_back(stream_messages(plan, pipe, messages));
    rows[1].figures.push_back(stream_puts(plan, pipe, windows));
    rows[2].figures.push_back(half_trip_of_messages(plan, pipe, messages));
    rows[3].figures.push_back(half_trip_of_signals(plan, pipe, windows, 0));
    rows[4].figures.push_back(half_trip_of_signals(plan, pipe, windows, 8));
  }
  if (pipe.rank == 0) {
    fmt::print("{} rounds on {}: medians (least to most); ratio to the messages'\n", plan.rounds,
               plan.nic);
    for (const Row& row : rows) print(row, rows[row.base]);
  }
  pipe.meet();
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  pacecar::Plan plan;
  CLI::App app("Compares one-sided operations (puts, signals) with messages.");
  app.option_defaults()->always_capture_default();
  app.add_option("-d,--nic", plan.nic, "as in PACECAR_NICS");
  app.add_option("-s,--size", plan.size, "bytes of a message or put");
  app.add_option("-t,--in-flight", plan.in_flight, "messages or puts in flight");
  app.add_option("-n,--messages", plan.messages, "messages in each stream");
  app.add_option("--trips", plan.trips, "round trips in each ping-pong");
  app.add_option("--rounds", plan.rounds, "rounds of all measurements");
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
