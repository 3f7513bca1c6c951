// Measures many connections of one process (README.md). One context sends to several others over an
// interface. All are in this process, so that the figures of a connection are those of both ends.
// Prints one line of JSON.
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "bench/perf/must.h"
#include "transport/api/pacecar.hpp"
#include "transport/engine/clock.h"

namespace {

using pacecar::Context;
using pacecar::Memory;
using pacecar::must;

double resident_kib() {
  malloc_trim(0);  // free memory does not count
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  if (file == nullptr || std::fscanf(file, "%*u %lu", &pages) != 1) std::exit(1);
  std::fclose(file);
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

double seconds_of(auto work) {
  const auto begin = pacecar::clock_now();
  work();
  return (pacecar::clock_now() - begin).seconds();
}

struct Pair {
  std::unique_ptr<pacecar::SendConnection> send;
  std::unique_ptr<pacecar::ReceiveConnection> receive;
};

// A context with memory for one message.
struct Process {
  std::unique_ptr<Context> context;
  std::unique_ptr<pacecar::Listener> listener;
  std::array<uint8_t, 64> bytes{};
  const Memory* memory = nullptr;

  explicit Process(const pacecar::Options& options)
      : context(must(Context::open(options))),
        listener(must(context->listen(0))),
        memory(must(context->register_memory(0, bytes.data(), bytes.size()))) {}
  Process(const Process&) = delete;
  ~Process() { must(context->deregister_memory(0, memory)); }
};

class World {
 public:
  World(const pacecar::Options& options, size_t peers) : from_(options) {
    for (size_t i = 0; i < peers; ++i) to_.emplace_back(options);
  }

  // Connects until there are so many connections, with each peer in turn.
  void connect(size_t count) {
    while (pairs_.size() < count) {
      Process& to = peer(pairs_.size());
      const auto connecting = must(from_.context->connect(0, to.listener->handle()));
      Pair& pair = pairs_.emplace_back();
      while (pair.send == nullptr || pair.receive == nullptr) {
        if (pair.receive == nullptr) pair.receive = must(to.listener->accept());
        if (pair.send == nullptr) pair.send = must(connecting->poll());
      }
    }
  }

  // One message over each connection but the first.
  void send_each() {
    for (size_t i = 1; i < pairs_.size(); ++i) round(i);
  }

  // One message over this connection.
  void round(size_t index) {
    Process& to = peer(index);
    const pacecar::ReceiveBuffer buffer{to.bytes.data(), to.bytes.size(), 0, to.memory};
    auto* const arrival = must(pairs_[index].receive->irecv({&buffer, 1}));
    auto* const sent =
        must(pairs_[index].send->isend(from_.bytes.data(), from_.bytes.size(), 0, from_.memory));
    bool arrived = false;
    bool left = false;
    while (!arrived || !left) {
      if (!left) left = must(pairs_[index].send->test(sent)).done;
      if (!arrived) arrived = must(pairs_[index].receive->test(arrival)).done;
    }
  }

  // Closes all but the first connection.
  void close() { pairs_.resize(1); }

 private:
  Process& peer(size_t index) { return to_[index % to_.size()]; }

  Process from_;
  std::deque<Process> to_;
  std::vector<Pair> pairs_;
};

}  // namespace

int main(int argc, char** argv) {
  size_t connections = 16384;
  size_t peers = 16;
  int rounds = 20000;
  std::string nic = "soft:udp:lo";
  CLI::App app{"Makes, uses and closes many connections of one process."};
  app.add_option("--connections", connections, "How many")->check(CLI::Range(2, 65'536));
  app.add_option("--peers", peers, "Receiving contexts")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", rounds, "Messages timed alone and among the others");
  app.add_option("--nic", nic, "NIC to use, as in PACECAR_NICS");
  CLI11_PARSE(app, argc, argv);

  const double begin_kib = resident_kib();
  World world({.settings = {{"PACECAR_NICS", nic}}}, peers);
  const double open_kib = resident_kib();
  world.connect(1);
  const auto rounds_us = [&] {
    return seconds_of([&] {
             for (int i = 0; i < rounds; ++i) world.round(0);
           }) *
           1e6 / rounds;
  };
  const double alone_us = rounds_us();
  const double first_kib = resident_kib();
  const double set_up_s = seconds_of([&] { world.connect(connections); });
  const double made_kib = resident_kib();
  world.send_each();
  const double used_kib = resident_kib();
  usleep(1000 * 1000);  // until all control writes are acknowledged and the connections idle
  const double among_us = rounds_us();
  const double close_s = seconds_of([&] { world.close(); });
  const double closed_kib = resident_kib();
  usleep(1000 * 3000);
  const double settled_kib = resident_kib();
  // Once more: memory that remains is a leak only if it grows.
  const double again_s = seconds_of([&] { world.connect(connections); });
  world.send_each();
  world.close();
  usleep(1000 * 3000);
  const double again_kib = resident_kib();
  const auto each = static_cast<double>(connections - 1);
  fmt::print(
      "{{\"connections\":{},\"peers\":{},\"context_kib\":{:.0f},\"set_up_per_s\":{:.0f},"
      "\"again_per_s\":{:.0f},\"made_kib_each\":{:.1f},\"used_kib_each\":{:.1f},"
      "\"alone_us\":{:.1f},\"among_us\":{:.1f},\"close_per_s\":{:.0f},\"closed_kib_each\":{:.1f},"
      "\"settled_kib_each\":{:.1f},\"settled_again_kib_each\":{:.1f}}}\n",
      connections, peers, (open_kib - begin_kib) / static_cast<double>(peers + 1), each / set_up_s,
      each / again_s, (made_kib - first_kib) / each, (used_kib - first_kib) / each, alone_us,
      among_us, each / close_s, (closed_kib - first_kib) / each, (settled_kib - first_kib) / each,
      (again_kib - first_kib) / each);
  return 0;
}
