#include "bench/nccl/pair_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bench/nccl/link.h"
#include "bench/nccl/value_or_throw.h"
#include "bench/perf/clock.h"
#include "net_plugin/host/host.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/units.h"

namespace pacecar::nccl {
namespace {

// There are two measurements of a connection: a stream of messages with several in flight, and a
// ping-pong.
//
// Both sides poll without sleeping, as NCCL's progress thread does, so the CPU time includes that
// whole thread, not only the plugin. The warm-up is not counted. A measurement ends with empty
// messages, one for each posted receive, so that no receive stays pending.

using Json = nlohmann::json;
using perf::ControlChannel;
using perf::ControlListener;
using perf::process_cpu_time;
using perf::steady_now;

constexpr size_t kPingsAhead = 32;  // receives that either end of a ping-pong posts ahead
constexpr Duration kWarmUp = Duration::from_ms(300);
constexpr size_t kMaxSamples = 4'000'000;
constexpr Duration kSetUpLimit = Duration::from_s(60);
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kGreeting = "pair";

// One end of a plugin's connection: its requests and their registered buffers, one slot per request
// in flight.
class Requests : public RequestStream {
 public:
  Requests(const Host& host, void* comm, size_t message_bytes, size_t slots)
      : RequestStream(slots),
        host_(host),
        comm_(comm),
        message_bytes_(message_bytes),
        buffer_(host, comm, message_bytes * slots) {
    std::ranges::fill(buffer_.bytes(), uint8_t{0x5a});  // no page fault is measured
  }

  // Start a request in a free slot. False: the plugin accepts none now.
  bool send(size_t bytes) { return post(host_.try_send(comm_, free_slot(bytes))); }
  bool receive() { return post(host_.try_receive(comm_, free_slot(message_bytes_))); }
  std::optional<size_t> take() { return RequestStream::take(host_); }

 private:
  Part free_slot(size_t bytes) const {
    return buffer_.part(posted() % window() * message_bytes_, bytes);
  }

  const Host& host_;
  void* comm_;
  size_t message_bytes_;
  Buffer buffer_;
};

// The figures of one side, from the end of its warm-up to the last message.
struct StreamReport {
  uint64_t messages = 0;
  Duration elapsed;
  Duration cpu;  // of the whole process
};

// Counts messages once the warm-up is over.
class Window {
 public:
  void count(Instant now) {
    last_ = now;
    if (counting_) {
      ++messages_;
    } else if (!begin_) {
      begin_ = now;
    } else if (now - *begin_ >= kWarmUp) {
      counting_ = true;
      begin_ = now;
      cpu_begin_ = process_cpu_time();
    }
  }

  bool has_counted() const { return messages_ > 0; }
  StreamReport report() const {
    if (!counting_) return {};
    return {messages_, last_ - *begin_, process_cpu_time() - cpu_begin_};
  }

 private:
  bool counting_ = false;
  std::optional<Instant> begin_;  // of the warm-up, then of the count
  Instant last_;
  Duration cpu_begin_;
  uint64_t messages_ = 0;
};

// One side of a ping-pong. As in NCCL's proxy, receives are posted ahead, and only the arrival of a
// message is waited for, not the completion of a send. The oldest send is tested meanwhile, because
// a plugin may make progress only within test.
class PingEnd {
 public:
  PingEnd(Requests& sends, Requests& receives) : sends_(sends), receives_(receives) {
    while (!receives_.full()) post();
  }

  void send(size_t bytes) {
    while (sends_.full()) sends_.take();
    while (!sends_.send(bytes)) {
    }
  }
  // The size of the next message. After one with data another receive is posted; the empty messages
  // at the end use up the posted receives.
  size_t receive() {
    std::optional<size_t> bytes;
    while (!(bytes = receives_.take())) sends_.take();
    if (*bytes > 0) post();
    return *bytes;
  }
  void finish() {
    while (sends_.in_flight() > 0) sends_.take();
  }

 private:
  void post() {
    while (!receives_.receive()) {
    }
  }

  Requests& sends_;
  Requests& receives_;
};

StreamReport stream_send(Requests& requests, size_t bytes, Duration length) {
  const size_t in_flight = requests.window();
  Window window;
  std::optional<Instant> end;  // set by the first completion: the receiver may start late
  size_t ends_sent = 0;
  while (ends_sent < in_flight || requests.in_flight() > 0) {
    const Instant now = steady_now();
    const bool ending = ends_sent > 0 || (end && now >= *end && window.has_counted());
    while (!requests.full() && ends_sent < in_flight && requests.send(ending ? 0 : bytes)) {
      if (ending) ++ends_sent;
    }
    if (requests.take().value_or(0) == 0) continue;
    if (!end) end = now + kWarmUp + length;
    window.count(now);
  }
  return window.report();
}

StreamReport stream_receive(Requests& requests) {
  const size_t in_flight = requests.window();
  Window window;
  size_t ends_received = 0;
  // After the first empty message only the other empty ones follow.
  const auto more_to_post = [&] {
    return ends_received == 0 ? !requests.full() : requests.in_flight() + ends_received < in_flight;
  };
  while (ends_received < in_flight) {
    while (more_to_post() && requests.receive()) {
    }
    const std::optional<size_t> bytes = requests.take();
    if (!bytes) continue;
    if (*bytes == 0) {
      ++ends_received;
    } else {
      window.count(steady_now());
    }
  }
  return window.report();
}

// Half round trips of `bytes` in microseconds, sorted.
std::vector<double> ping(Requests& out, Requests& in, size_t bytes, Duration length) {
  std::vector<double> samples;
  samples.reserve(kMaxSamples);
  PingEnd end(out, in);
  std::optional<Instant> warm;
  const auto over = [&](Instant now) {
    return samples.size() == kMaxSamples || (!samples.empty() && now >= *warm + length);
  };
  for (Instant now; !over(now);) {
    const Instant begin = steady_now();
    end.send(bytes);
    end.receive();
    now = steady_now();
    if (!warm) warm = now + kWarmUp;
    if (begin >= *warm) samples.push_back((now - begin).us() / 2);
  }
  for (size_t i = 0; i < kPingsAhead; ++i) end.send(0);
  for (size_t i = 0; i < kPingsAhead; ++i) end.receive();
  end.finish();
  std::sort(samples.begin(), samples.end());
  return samples;
}

void pong(Requests& out, Requests& in) {
  PingEnd end(out, in);
  for (size_t ends = 0; ends < kPingsAhead;) {
    const size_t bytes = end.receive();
    end.send(bytes);
    if (bytes == 0) ++ends;
  }
  end.finish();
}

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
  void* const comm = accept_peer(host, channel);
  {
    Requests receives(host, comm, wanted.at("size").get<size_t>(),
                      wanted.at("in_flight").get<size_t>());
    const StreamReport report = stream_receive(receives);
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
    Requests in(host, from, size, kPingsAhead);
    Requests out(host, to, size, kPingsAhead);
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
    Requests sends(host, comm, plan.size, plan.in_flight);
    sent = stream_send(sends, plan.size, length_of(plan));
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
    Requests out(host, to, plan.ping_size, kPingsAhead);
    Requests in(host, from, plan.ping_size, kPingsAhead);
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

Json described(const Host& host) {
  return {{"schema_version", 1},
          {"api", "v" + std::to_string(host.net().version)},
          {"device", host.device_name()}};
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
    result.update(described(*host));
    result["plugin"] = plan.plugin;
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
    status = EXIT_FAILURE;  // the sender reports the error
  }
  std::_Exit(status);
}

bool succeeded(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

// Each end is a new process, and this process never loads the plugin: a fork has no copy of the
// threads that a plugin has started. The sender's figures, or its error, come through a pipe.
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
  const bool sent = succeeded(sender);
  const Json result = Json::parse(text, nullptr, false);
  const bool failed = !sent || result.is_discarded() || result.contains("error");
  if (failed) kill(receiver, SIGKILL);
  const bool received = succeeded(receiver);
  if (failed) {
    const bool reason = result.is_object() && result.contains("error");
    throw std::runtime_error(reason ? result.at("error").get<std::string>()
                                    : "the sending process has failed");
  }
  if (!received) throw std::runtime_error("the receiving process has failed");
  return result;
}

}  // namespace pacecar::nccl
