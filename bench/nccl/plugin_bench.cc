// plugin_bench: two processes send messages over a net plugin's own table, without NCCL and without
// a GPU. Without --listen and --connect both run here, forked; with them, on two hosts or in two
// network namespaces.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/nccl/measure.h"
#include "bench/nccl/plugin.h"
#include "bench/perf/clock.h"
#include "bench/perf/control_channel.h"
#include "bench/perf/exit_code.h"

namespace pacecar::nccl {
namespace {

using Json = nlohmann::json;
using perf::ControlChannel;
using perf::ControlListener;

constexpr Duration kSetUpLimit = Duration::from_s(60);

struct Options {
  std::string plugin;
  std::string api = "v11";
  uint64_t size = 1U << 20;
  uint64_t in_flight = 8;
  double seconds = 3;
  bool latency = false;
  bool json = false;
  bool verbose = false;
  uint16_t listen_port = 0;
  std::string connect_to;
};

Duration length_of(const Options& options) {
  return Duration::from_ns(static_cast<int64_t>(options.seconds * 1e9));
}

Patience patience() {
  return [deadline = perf::steady_now() + kSetUpLimit]() -> Result<void> {
    if (perf::steady_now() < deadline) return {};
    return fail(ErrorCode::kPeer, "the other process does not connect: see its message");
  };
}

void* accept_peer(const Plugin& plugin, ControlChannel& channel) {
  HandleBytes handle{};
  void* const listening = value_or_throw(plugin.listen(&handle));
  value_or_throw(channel.send({{"type", "handle"}, {"bytes", handle}}));
  void* const comm = value_or_throw(plugin.accept(listening, patience()));
  value_or_throw(plugin.close_listen(listening));
  return comm;
}

void* connect_peer(const Plugin& plugin, ControlChannel& channel) {
  const Json message = value_or_throw(channel.expect("handle", kSetUpLimit));
  return value_or_throw(plugin.connect(message.at("bytes").get<HandleBytes>(), patience()));
}

void serve_stream(const Plugin& plugin, ControlChannel& channel, const Json& plan) {
  const auto in_flight = plan.at("in_flight").get<size_t>();
  void* const comm = accept_peer(plugin, channel);
  {
    const MessageSlots slots(plugin, comm, plan.at("size").get<size_t>(), in_flight);
    const StreamReport report = stream_receive(slots, in_flight);
    value_or_throw(channel.send({{"type", "report"},
                                 {"messages", report.messages},
                                 {"elapsed_ns", report.elapsed.ns()},
                                 {"cpu_ns", report.cpu.ns()}}));
  }
  value_or_throw(plugin.close_receive(comm));
}

void serve_latency(const Plugin& plugin, ControlChannel& channel) {
  void* const from = accept_peer(plugin, channel);
  void* const to = connect_peer(plugin, channel);
  {
    const MessageSlots in(plugin, from, kPingBytes, kPingsAhead);
    const MessageSlots out(plugin, to, kPingBytes, kPingsAhead);
    pong(out, in);
  }
  value_or_throw(channel.expect("end", kSetUpLimit));
  value_or_throw(plugin.close_send(to));
  value_or_throw(plugin.close_receive(from));
}

// The receiving process; what to measure comes from the sender.
void serve(const Options& options, ControlChannel channel) {
  try {
    const auto plugin = value_or_throw(Plugin::load(options.plugin, options.verbose));
    const Json plan = value_or_throw(channel.expect("plan", kSetUpLimit));
    if (plan.at("latency").get<bool>()) {
      serve_latency(*plugin, channel);
    } else {
      serve_stream(*plugin, channel, plan);
    }
  } catch (const std::exception& error) {
    channel.send_error(error.what());
    throw;
  }
}

Json measure_stream(const Options& options, const Plugin& plugin, ControlChannel& channel) {
  void* const comm = connect_peer(plugin, channel);
  StreamReport sent;
  {
    const MessageSlots slots(plugin, comm, options.size, options.in_flight);
    sent = stream_send(slots, options.size, options.in_flight, length_of(options));
  }
  const Json received = value_or_throw(channel.expect("report", kSetUpLimit));
  value_or_throw(plugin.close_send(comm));

  const auto size = static_cast<double>(options.size);
  const auto count = received.at("messages").get<uint64_t>();
  const auto messages = static_cast<double>(count);
  const double seconds = received.at("elapsed_ns").get<double>() * 1e-9;
  if (count == 0 || sent.messages == 0) {
    throw std::runtime_error("no message arrived after the warm-up: raise --seconds");
  }
  return {{"test", "stream"},
          {"size_bytes", options.size},
          {"in_flight", options.in_flight},
          {"seconds", seconds},
          {"messages", count},
          {"gbps", messages * size * 8 / seconds * 1e-9},
          {"messages_per_s", messages / seconds},
          {"sender_cpu_s_per_gb",
           sent.cpu.seconds() / (static_cast<double>(sent.messages) * size * 1e-9)},
          {"receiver_cpu_s_per_gb",
           received.at("cpu_ns").get<double>() * 1e-9 / (messages * size * 1e-9)}};
}

Json measure_latency(const Options& options, const Plugin& plugin, ControlChannel& channel) {
  void* const to = connect_peer(plugin, channel);
  void* const from = accept_peer(plugin, channel);
  std::vector<double> samples;
  {
    const MessageSlots out(plugin, to, kPingBytes, kPingsAhead);
    const MessageSlots in(plugin, from, kPingBytes, kPingsAhead);
    samples = ping(out, in, length_of(options));
  }
  value_or_throw(channel.send({{"type", "end"}}));
  value_or_throw(plugin.close_send(to));
  value_or_throw(plugin.close_receive(from));
  if (samples.empty()) throw std::runtime_error("no ping came back: raise --seconds");
  const auto percentile = [&](double p) {
    return samples[static_cast<size_t>(p / 100 * static_cast<double>(samples.size() - 1))];
  };
  return {{"test", "latency"},         {"size_bytes", kPingBytes},     {"samples", samples.size()},
          {"min_us", samples.front()}, {"p50_us", percentile(50)},     {"p90_us", percentile(90)},
          {"p99_us", percentile(99)},  {"p99_9_us", percentile(99.9)}, {"max_us", samples.back()}};
}

// The sending process: decides, measures and reports.
Json drive(const Options& options, ControlChannel channel) {
  try {
    const auto plugin = value_or_throw(Plugin::load(options.plugin, options.verbose));
    value_or_throw(channel.send({{"type", "plan"},
                                 {"latency", options.latency},
                                 {"size", options.size},
                                 {"in_flight", options.in_flight}}));
    Json result = options.latency ? measure_latency(options, *plugin, channel)
                                  : measure_stream(options, *plugin, channel);
    result["schema_version"] = 1;
    result["plugin"] = options.plugin;
    result["api"] = options.api;
    result["device"] = value_or_throw(plugin->device_name());
    return result;
  } catch (const std::exception& error) {
    channel.send_error(error.what());
    throw;
  }
}

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

ControlChannel connect_channel(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) throw std::runtime_error("--connect needs HOST:PORT");
  const int port = std::stoi(address.substr(colon + 1));
  return value_or_throw(
      ControlChannel::connect(address.substr(0, colon), static_cast<uint16_t>(port), kSetUpLimit));
}

// Both processes here: the child receives.
int run_pair(const Options& options) {
  ControlListener listener = value_or_throw(ControlListener::open(0));
  const pid_t child = fork();
  if (child == 0) {
    serve(options, connect_channel("127.0.0.1:" + std::to_string(listener.port())));
    return perf::kExitOk;
  }
  const Json result = drive(options, value_or_throw(listener.accept()));
  int status = 0;
  waitpid(child, &status, 0);
  print(options, result);
  return status == 0 ? perf::kExitOk : perf::kExitFailed;
}

int run(const Options& options) {
  if (options.listen_port != 0) {
    ControlListener listener = value_or_throw(ControlListener::open(options.listen_port));
    serve(options, value_or_throw(listener.accept()));
    return perf::kExitOk;
  }
  if (options.connect_to.empty()) return run_pair(options);
  print(options, drive(options, connect_channel(options.connect_to)));
  return perf::kExitOk;
}

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  pacecar::nccl::Options options;
  CLI::App app("Measures an NCCL net plugin's sends and receives between two processes.");
  app.add_option("plugin", options.plugin, "Path of the plugin's shared library")->required();
  app.add_option("--api", options.api, "Version of the plugin's table")
      ->check(CLI::IsMember({"v11"}))
      ->capture_default_str();
  app.add_option("--size", options.size, "Bytes per message, with K, M or G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--in-flight", options.in_flight, "Messages in flight")
      ->check(CLI::Range(1, pacecar::nccl::kMaxRequestsPerConnection))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Length of the measurement")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--latency", options.latency, "Measure an 8-byte ping-pong instead of a stream");
  app.add_flag("--json", options.json, "Print one line of JSON");
  app.add_flag("--verbose", options.verbose, "Print what the plugin logs at INFO");
  auto* const listen = app.add_option("--listen", options.listen_port,
                                      "Receive: wait for --connect on this TCP port");
  app.add_option("--connect", options.connect_to, "Send: HOST:PORT of the process that listens")
      ->excludes(listen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? pacecar::perf::kExitOk : pacecar::perf::kExitUsage;
  }
  try {
    return pacecar::nccl::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugin_bench: {}\n", error.what());
    return pacecar::perf::kExitFailed;
  }
}
