// plugin_bench: two processes send messages over a net plugin's own table, without NCCL and without
// a GPU. Without --listen and --connect both run on this host, forked; with them, on two hosts or
// in two network namespaces. With --against two plugins take turns. Each process has one thread of
// its own.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl/pair_bench.h"
#include "bench/nccl/spread.h"
#include "bench/nccl/value_or_throw.h"
#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {
namespace {

using perf::steady_now;
using Json = nlohmann::json;

constexpr size_t kListeners = 64;  // at once: each holds a descriptor
constexpr size_t kMessageBytes = 64;

void connect(const Host& host, std::span<Ends> ends) {
  std::vector<Listening> listening(ends.size());
  for (Listening& one : listening) one = host.listen();
  poll_until("connections", [&] {
    bool ready = true;
    for (size_t i = 0; i < ends.size(); ++i) {
      ready &= host.try_both(listening[i].handle, listening[i].comm, &ends[i]);
    }
    return ready;
  });
  for (const Listening& one : listening) host.close_listen(one.comm);
}

void pass_messages(const Host& host, const std::vector<Ends>& ends) {
  for (const Ends& one : ends) {
    const Buffer from(host, one.send, kMessageBytes);
    const Buffer to(host, one.receive, kMessageBytes);
    void* const receiving = host.receive(one.receive, to.whole());
    host.finish(receiving, host.send(one.send, from.whole()));
  }
}

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

int64_t resident_kb() {
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  pages >> all >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// Opens `connections` of this process to itself, each with a listener of its own as in NCCL, passes
// a message over each and closes them; `rounds` times. Reports by how much the descriptors and the
// resident memory grew between the end of the first round and that of the last. Throws
// std::runtime_error.
Json measure_setup(const Host& host, size_t connections, size_t rounds) {
  Duration connecting;
  Duration closing;
  int64_t descriptors = 0;
  int64_t resident = 0;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<Ends> ends(connections);
    const Instant begin = steady_now();
    for (size_t first = 0; first < connections; first += kListeners) {
      connect(host, std::span(ends).subspan(first, std::min(kListeners, connections - first)));
    }
    connecting = connecting + (steady_now() - begin);
    pass_messages(host, ends);
    const Instant end = steady_now();
    for (const Ends& one : ends) host.close(one);
    closing = closing + (steady_now() - end);
    if (round == 0) {
      descriptors = open_descriptors();
      resident = resident_kb();
    }
  }
  const auto made = static_cast<double>(connections * rounds);
  return {{"test", "setup"},
          {"connections", connections},
          {"rounds", rounds},
          {"connects_per_s", made / connecting.seconds()},
          {"closes_per_s", made / closing.seconds()},
          {"descriptors_grown", open_descriptors() - descriptors},
          {"resident_kb", resident_kb()},
          {"resident_kb_grown", resident_kb() - resident}};
}

struct Options {
  PairPlan plan;
  bool json = false;
  size_t setup_connections = 0;  // not 0: only --setup is measured
  size_t rounds = 10;
  std::string against;     // another plugin; empty: none
  std::string listen_at;   // HOST:PORT
  std::string connect_to;  // HOST:PORT
};

void print(const Options& options, const Json& result) {
  if (options.json) {
    fmt::print("{}\n", result.dump());
    return;
  }
  for (const auto& [key, value] : result.items()) {
    fmt::print("{:>22} {}\n", key,
               value.is_number_float() ? fmt::format("{:.3f}", value.get<double>()) : value.dump());
  }
}

std::pair<std::string, uint16_t> host_and_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    throw std::runtime_error("--listen and --connect need HOST:PORT");
  }
  return {text.substr(0, colon), static_cast<uint16_t>(std::stoi(text.substr(colon + 1)))};
}

Json set_up(const Options& options) {
  const std::unique_ptr<Host> host = start_host(options.plan);
  Json result = measure_setup(*host, options.setup_connections, options.rounds);
  result.update(described(*host));
  return result;
}

// Measures this plugin and the other one in turns; the figures are medians over the rounds.
Json compare(const Options& options) {
  const std::string figure = options.plan.latency ? "p50_us" : "gbps";
  std::array<PairPlan, 2> plans = {options.plan, options.plan};
  plans[1].plugin = options.against;
  std::array<Json, 2> last;
  std::array<std::vector<double>, 2> figures;
  std::vector<double> ratios;
  for (size_t round = 0; round < options.rounds; ++round) {
    for (size_t turn = 0; turn < plans.size(); ++turn) {
      const size_t i = (round + turn) % plans.size();
      last[i] = run_pair(plans[i]);
      figures[i].push_back(last[i].at(figure).get<double>());
    }
    const double ratio = figures[0].back() / figures[1].back();
    ratios.push_back(options.plan.latency ? 1 / ratio : ratio);
  }
  const Spread speedup = spread_of(std::move(ratios));
  return {{"schema_version", 1},
          {"test", last[0].at("test")},
          {"size_bytes", last[0].at("size_bytes")},
          {"rounds", options.rounds},
          {"device", last[0].at("device")},
          {"against_device", last[1].at("device")},
          {figure, spread_of(std::move(figures[0])).median},
          {"against_" + figure, spread_of(std::move(figures[1])).median},
          {"speedup_median", speedup.median},
          {"speedup_least", speedup.least},
          {"speedup_most", speedup.most}};
}

Json result_of(const Options& options) {
  if (options.setup_connections != 0) return set_up(options);
  if (!options.against.empty()) return compare(options);
  if (options.connect_to.empty()) return run_pair(options.plan);
  const auto [host, port] = host_and_port(options.connect_to);
  return drive_pair(options.plan, connect_pair(host, port));
}

void run(const Options& options) {
  if (options.listen_at.empty() || options.setup_connections != 0)
    return print(options, result_of(options));
  const auto [host, port] = host_and_port(options.listen_at);
  auto listener = value_or_throw(perf::ControlListener::open({host}, port));
  serve_pair(options.plan, await_pair(listener));
}

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  pacecar::nccl::Options options;
  CLI::App app("Measures an NCCL net plugin's sends and receives between two processes.");
  app.add_option("plugin", options.plan.plugin, "Path of the plugin's shared library")->required();
  app.add_option("--api", options.plan.version, "Version of the plugin's table; 0: the newest")
      ->check(CLI::Range(0, pacecar::nccl::kNewestVersion))
      ->capture_default_str();
  app.add_option("--size", options.plan.size, "Bytes per message, with K, M or G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--in-flight", options.plan.in_flight, "Messages in flight")
      ->check(CLI::Range(1, pacecar::nccl::kMaxRequestsPerConnection))
      ->capture_default_str();
  app.add_option("--seconds", options.plan.seconds, "Length of the measurement")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--latency", options.plan.latency, "Measure a ping-pong instead of a stream");
  app.add_option("--ping-size", options.plan.ping_size, "Bytes per message of --latency")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{16} << 20))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print one line of JSON");
  app.add_flag("--verbose", options.plan.verbose, "Print what the plugin logs at INFO");
  auto* const against = app.add_option("--against", options.against,
                                       "Compare with this plugin, in turns, by ratios in a round");
  app.add_option("--setup", options.setup_connections,
                 "Measure how fast this many connections of the process to itself are made")
      ->check(CLI::Range(1, 1024))
      ->excludes(against);
  app.add_option("--rounds", options.rounds,
                 "How often --setup makes the connections, or --against measures each plugin")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  auto* const listen = app.add_option("--listen", options.listen_at,
                                      "Receive: wait at HOST:PORT of this host for --connect")
                           ->excludes(against);
  app.add_option("--connect", options.connect_to, "Send: HOST:PORT of the process that listens")
      ->excludes(listen)
      ->excludes(against);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? pacecar::perf::kExitOk : pacecar::perf::kExitUsage;
  }
  try {
    pacecar::nccl::run(options);
    return pacecar::perf::kExitOk;
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugin_bench: {}\n", error.what());
    return pacecar::perf::kExitFailed;
  }
}
