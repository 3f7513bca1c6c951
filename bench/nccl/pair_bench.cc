#include "bench/nccl/pair_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/nccl/measure.h"
#include "bench/nccl/value_or_throw.h"
#include "bench/perf/clock.h"
#include "transport/base/file_descriptor.h"

namespace pacecar::nccl {
namespace {

using Json = nlohmann::json;
using perf::ControlChannel;
using perf::ControlListener;

constexpr Duration kSetUpLimit = Duration::from_s(60);
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kGreeting = "pair";

Duration length_of(const PairPlan& plan) {
  return Duration::from_ns(static_cast<int64_t>(plan.seconds * 1e9));
}

void* accept_peer(const Host& host, ControlChannel& channel) {
  const Listening listening = host.listen();
  value_or_throw(channel.send({{"type", "handle"}, {"bytes", listening.handle}}));
  void* const comm = host.accept(listening.comm);
  host.close_listen(listening.comm);
  return comm;
}

void* connect_peer(const Host& host, ControlChannel& channel) {
  const Json message = value_or_throw(channel.expect("handle", kSetUpLimit));
  return host.connect(message.at("bytes").get<HandleBytes>());
}

void serve_stream(const Host& host, ControlChannel& channel, const Json& wanted) {
  const auto in_flight = wanted.at("in_flight").get<size_t>();
  void* const comm = accept_peer(host, channel);
  {
    const MessageSlots slots(host, comm, wanted.at("size").get<size_t>(), in_flight);
    const StreamReport report = stream_receive(slots, in_flight);
    value_or_throw(channel.send({{"type", "report"},
                                 {"messages", report.messages},
                                 {"elapsed_ns", report.elapsed.ns()},
                                 {"cpu_ns", report.cpu.ns()}}));
  }
  host.close_receive(comm);
}

void serve_latency(const Host& host, ControlChannel& channel, const Json& wanted) {
  const auto size = wanted.at("ping_size").get<size_t>();
  void* const from = accept_peer(host, channel);
  void* const to = connect_peer(host, channel);
  {
    const MessageSlots in(host, from, size, kPingsAhead);
    const MessageSlots out(host, to, size, kPingsAhead);
    pong(out, in);
  }
  value_or_throw(channel.expect("end", kSetUpLimit));
  host.close_send(to);
  host.close_receive(from);
}

Json measure_stream(const PairPlan& plan, const Host& host, ControlChannel& channel) {
  void* const comm = connect_peer(host, channel);
  StreamReport sent;
  {
    const MessageSlots slots(host, comm, plan.size, plan.in_flight);
    sent = stream_send(slots, plan.size, plan.in_flight, length_of(plan));
  }
  const Json received = value_or_throw(channel.expect("report", kSetUpLimit));
  host.close_send(comm);

  const auto size = static_cast<double>(plan.size);
  const auto count = received.at("messages").get<uint64_t>();
  const auto messages = static_cast<double>(count);
  const double seconds = received.at("elapsed_ns").get<double>() * 1e-9;
  if (count == 0 || sent.messages == 0) {
    throw std::runtime_error("no message arrived after the warm-up: raise --seconds");
  }
  return {{"test", "stream"},
          {"size_bytes", plan.size},
          {"in_flight", plan.in_flight},
          {"seconds", seconds},
          {"messages", count},
          {"gbps", messages * size * 8 / seconds * 1e-9},
          {"messages_per_s", messages / seconds},
          {"sender_cpu_s_per_gb",
           sent.cpu.seconds() / (static_cast<double>(sent.messages) * size * 1e-9)},
          {"receiver_cpu_s_per_gb",
           received.at("cpu_ns").get<double>() * 1e-9 / (messages * size * 1e-9)}};
}

Json measure_latency(const PairPlan& plan, const Host& host, ControlChannel& channel) {
  void* const to = connect_peer(host, channel);
  void* const from = accept_peer(host, channel);
  std::vector<double> samples;
  {
    const MessageSlots out(host, to, plan.ping_size, kPingsAhead);
    const MessageSlots in(host, from, plan.ping_size, kPingsAhead);
    samples = ping(out, in, plan.ping_size, length_of(plan));
  }
  value_or_throw(channel.send({{"type", "end"}}));
  host.close_send(to);
  host.close_receive(from);
  if (samples.empty()) throw std::runtime_error("no ping came back: raise --seconds");
  const auto percentile = [&](double p) {
    return samples[static_cast<size_t>(p / 100 * static_cast<double>(samples.size() - 1))];
  };
  return {{"test", "latency"},         {"size_bytes", plan.ping_size}, {"samples", samples.size()},
          {"min_us", samples.front()}, {"p50_us", percentile(50)},     {"p90_us", percentile(90)},
          {"p99_us", percentile(99)},  {"p99_9_us", percentile(99.9)}, {"max_us", samples.back()}};
}

}  // namespace

std::unique_ptr<Host> start_host(const PairPlan& plan) {
  auto host = std::make_unique<Host>(Subject{plan.plugin, plan.version, plan.device},
                                     stderr_log(plan.verbose));
  host->start();
  return host;
}

void serve_pair(const PairPlan& plan, perf::ControlChannel channel) {
  try {
    const std::unique_ptr<Host> host = start_host(plan);
    const Json wanted = value_or_throw(channel.expect("plan", kSetUpLimit));
    if (wanted.at("latency").get<bool>()) {
      serve_latency(*host, channel, wanted);
    } else {
      serve_stream(*host, channel, wanted);
    }
  } catch (const std::exception& error) {
    channel.send_error(error.what());
    throw;
  }
}

Json drive_pair(const PairPlan& plan, perf::ControlChannel channel) {
  try {
    const std::unique_ptr<Host> host = start_host(plan);
    value_or_throw(channel.send({{"type", "plan"},
                                 {"latency", plan.latency},
                                 {"size", plan.size},
                                 {"ping_size", plan.ping_size},
                                 {"in_flight", plan.in_flight}}));
    Json result =
        plan.latency ? measure_latency(plan, *host, channel) : measure_stream(plan, *host, channel);
    result["schema_version"] = 1;
    result["plugin"] = plan.plugin;
    result["api"] = "v" + std::to_string(host->net().version());
    result["device"] = host->device_name();
    return result;
  } catch (const std::exception& error) {
    channel.send_error(error.what());
    throw;
  }
}

perf::ControlChannel connect_pair(const std::string& host, uint16_t port) {
  ControlChannel channel = value_or_throw(ControlChannel::connect(host, port, kSetUpLimit));
  value_or_throw(channel.send({{"type", kGreeting}}));
  return channel;
}

perf::ControlChannel await_pair(perf::ControlListener& listener) {
  return value_or_throw(listener.accept(kGreeting)).channel;
}

namespace {

template <typename Body>
pid_t fork_end(const Body& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = EXIT_SUCCESS;
  try {
    body();
  } catch (const std::exception&) {
    status = EXIT_FAILURE;  // the sender has the reason
  }
  std::_Exit(status);
}

bool ends_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

// Each end has a process of its own: a fork of one that has loaded a plugin lacks its threads. The
// sender's figures, or its error, come through a pipe.
Json run_pair(const PairPlan& plan) {
  ControlListener listener = value_or_throw(ControlListener::open({kLoopback}, 0));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  FileDescriptor figures(ends[0]);
  FileDescriptor report(ends[1]);
  const pid_t receiver = fork_end([&] {
    report = FileDescriptor();
    serve_pair(plan, connect_pair(kLoopback, listener.port()));
  });
  const pid_t sender = fork_end([&] {
    Json result;
    try {
      result = drive_pair(plan, await_pair(listener));
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    const std::string text = result.dump();
    if (write(report.get(), text.data(), text.size()) < 0) std::_Exit(EXIT_FAILURE);
  });
  report = FileDescriptor();
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = read(figures.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(size));
  }
  const bool sent = ends_well(sender);
  const Json result = Json::parse(text, nullptr, false);
  const bool failed = !sent || result.is_discarded() || result.contains("error");
  if (failed) kill(receiver, SIGKILL);
  const bool received = ends_well(receiver);
  if (failed) {
    const bool reason = result.is_object() && result.contains("error");
    throw std::runtime_error(reason ? result.at("error").get<std::string>()
                                    : "the sending process did not end well");
  }
  if (!received) throw std::runtime_error("the receiving process did not end well");
  return result;
}

}  // namespace pacecar::nccl
