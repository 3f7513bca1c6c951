// Measures the cost of an idle engine, and its time to wake. Two engines of one process share an
// open connection over an interface. First they idle for --seconds. Then messages arrive after
// pauses; the application does not poll, so that the engine's own thread must receive them. Prints
// one line of JSON: percent of a core per engine, microseconds from isend to arrival.
#include <fmt/core.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/perf/clock.h"
#include "bench/perf/must.h"
#include "transport/api/pacecar.hpp"
#include "transport/message/message_request.h"

namespace {

using pacecar::Context;
using pacecar::Duration;
using pacecar::MessageRequest;
using pacecar::must;

void sleep_for(Duration time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time.ns())); }

struct Pair {
  std::unique_ptr<Context> from;
  std::unique_ptr<Context> to;
  std::unique_ptr<pacecar::SendConnection> send;
  std::unique_ptr<pacecar::ReceiveConnection> receive;
};

Pair connect(const std::string& nic) {
  const pacecar::Options options{.settings = {{"PACECAR_NICS", nic}}};
  Pair pair{must(Context::open(options)), must(Context::open(options)), nullptr, nullptr};
  const auto listener = must(pair.to->listen(0));
  const auto connecting = must(pair.from->connect(0, listener->handle()));
  while (pair.send == nullptr || pair.receive == nullptr) {
    if (pair.receive == nullptr) pair.receive = must(listener->accept());
    if (pair.send == nullptr) pair.send = must(connecting->poll());
  }
  return pair;
}

double wake_us(Pair& pair, Duration pause) {
  MessageRequest* const arrival = must(pair.receive->irecv({{pacecar::ReceiveBuffer{}}}));
  sleep_for(pause);
  const auto begin = pacecar::perf::steady_now();
  MessageRequest* const sent = must(pair.send->isend(nullptr, 0, 0, nullptr));
  while (arrival->state() == MessageRequest::State::kPending) {
    sched_yield();  // the engine's thread may have been woken on this processor
  }
  const double us = (pacecar::perf::steady_now() - begin).us();
  must(pair.receive->test(arrival));
  while (!must(pair.send->test(sent)).done) {
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 5;
  int messages = 200;
  std::string nic = "soft:udp:lo";
  CLI::App app{"Measures what an idle engine costs and how fast it wakes."};
  app.add_option("--seconds", seconds, "How long to be idle")->check(CLI::Range(0.01, 600.0));
  app.add_option("--messages", messages, "How often to wake it")->check(CLI::Range(1, 100'000));
  app.add_option("--nic", nic, "NIC to use, as in PACECAR_NICS");
  CLI11_PARSE(app, argc, argv);

  Pair pair = connect(nic);
  sleep_for(Duration::from_ms(100));
  const Duration before = pacecar::perf::process_cpu_time();
  sleep_for(Duration::from_ns(static_cast<int64_t>(seconds * 1e9)));
  const Duration used = pacecar::perf::process_cpu_time() - before;

  std::vector<double> samples;
  for (int i = 0; i < messages; ++i) samples.push_back(wake_us(pair, Duration::from_ms(10)));
  std::sort(samples.begin(), samples.end());
  fmt::print(
      "{{\"idle_percent_per_engine\":{:.4f},\"wake_us_median\":{:.1f},\"wake_us_p99\":{:.1f},"
      "\"wake_us_max\":{:.1f}}}\n",
      used.seconds() / seconds * 100 / 2, samples[samples.size() / 2],
      samples[samples.size() * 99 / 100], samples.back());
  return 0;
}
