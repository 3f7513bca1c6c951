#include "bench/check/speed.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/check/host.h"
#include "bench/cli/clock.h"
#include "net_plugin/host/request_stream.h"

namespace pacecar::check {
namespace {

// Both sides poll without sleeping, as NCCL's progress thread does, so the CPU time includes that
// whole thread, not only the plugin. The warm-up is not counted. A measurement ends with empty
// messages, one for each posted receive, so that no receive stays pending.

using Json = nlohmann::json;
using cli::process_cpu_time;
using cli::steady_now;

constexpr size_t kMessageBytes = size_t{1} << 20;  // of a stream
constexpr size_t kInFlight = 8;
constexpr size_t kPingBytes = 8;
constexpr size_t kPingsAhead = 32;  // receives that either end of a ping-pong posts ahead
constexpr Duration kWarmUp = Duration::from_ms(300);
constexpr size_t kMaxSamples = 4'000'000;

// One end of a connection: its requests and their buffers, one slot per request in flight.
class Requests : public nccl::RequestStream {
 public:
  Requests(const nccl::Host& host, void* comm, size_t message_bytes, size_t slots)
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

  const nccl::Host& host_;
  void* comm_;
  size_t message_bytes_;
  Buffer buffer_;
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
  StreamFigures figures() const {
    nccl::expect(has_counted(), "no message arrived after the warm-up: raise --seconds");
    return {messages_, (last_ - *begin_).seconds(), (process_cpu_time() - cpu_begin_).seconds()};
  }

 private:
  bool counting_ = false;
  std::optional<Instant> begin_;  // of the warm-up, then of the count
  Instant last_;
  Duration cpu_begin_;
  uint64_t messages_ = 0;
};

StreamFigures send_stream(Requests& requests, Duration length) {
  Window window;
  std::optional<Instant> end;  // set by the first completion: the receiver may start late
  size_t ends_sent = 0;
  while (ends_sent < kInFlight || requests.in_flight() > 0) {
    const Instant now = steady_now();
    const bool ending = ends_sent > 0 || (end && now >= *end && window.has_counted());
    while (!requests.full() && ends_sent < kInFlight && requests.send(ending ? 0 : kMessageBytes)) {
      if (ending) ++ends_sent;
    }
    if (requests.take().value_or(0) == 0) continue;
    if (!end) end = now + kWarmUp + length;
    window.count(now);
  }
  return window.figures();
}

StreamFigures receive_stream(Requests& requests) {
  Window window;
  size_t ends_received = 0;
  // After the first empty message only the other empty ones follow.
  const auto more_to_post = [&] {
    return ends_received == 0 ? !requests.full() : requests.in_flight() + ends_received < kInFlight;
  };
  while (ends_received < kInFlight) {
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
  return window.figures();
}

// One side of a ping-pong. As in NCCL's proxy, receives are posted ahead, and only the arrival of a
// message is waited for, not the completion of a send. The oldest send is tested meanwhile, because
// a plugin may make progress only within test.
class PingEnd {
 public:
  PingEnd(const nccl::Host& host, const Ends& ends)
      : sends_(host, ends.send, kPingBytes, kPingsAhead),
        receives_(host, ends.receive, kPingBytes, kPingsAhead) {
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

  Requests sends_;
  Requests receives_;
};

// Half round trips in microseconds, sorted.
std::vector<double> ping(PingEnd& end, Duration length) {
  std::vector<double> samples;
  samples.reserve(kMaxSamples);
  std::optional<Instant> warm;
  const auto over = [&](Instant now) {
    return samples.size() == kMaxSamples || (!samples.empty() && now >= *warm + length);
  };
  for (Instant now; !over(now);) {
    const Instant begin = steady_now();
    end.send(kPingBytes);
    end.receive();
    now = steady_now();
    if (!warm) warm = now + kWarmUp;
    if (begin >= *warm) samples.push_back((now - begin).us() / 2);
  }
  for (size_t i = 0; i < kPingsAhead; ++i) end.send(0);
  for (size_t i = 0; i < kPingsAhead; ++i) end.receive();
  std::sort(samples.begin(), samples.end());
  return samples;
}

void pong(PingEnd& end) {
  for (size_t ends = 0; ends < kPingsAhead;) {
    const size_t bytes = end.receive();
    end.send(bytes);
    if (bytes == 0) ++ends;
  }
}

// A connection in each direction.
Ends connect_both_ways(Arena& arena, Host& host) {
  host.start();
  const Listening listening = host.listen();
  const auto own = static_cast<size_t>(host.rank());
  arena.handles[own] = listening.handle;
  host.barrier();
  nccl::HandleBytes peer = arena.handles[1 - own];
  Ends ends;
  poll_until("connections", [&] { return host.try_both(peer, listening.comm, &ends); });
  host.close_listen(listening.comm);
  return ends;
}

constexpr size_t kListeners = 64;  // at once: each holds a descriptor

void connect_to_self(const Host& host, std::span<Ends> ends) {
  std::vector<Listening> listening(ends.size());
  for (Listening& one : listening) one = host.listen();
  poll_until("connections", [&] {
    bool ready = true;
    for (size_t i = 0; i < ends.size(); ++i) {
      ready &= host.try_both(listening[i].handle, listening[i].comm, &ends[i]);
    }
    return ready;
  });
  host.close_listens(listening);
}

int64_t resident_kb() {
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  pages >> all >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace

Json measure_connections(Arena& arena, const nccl::Subject& subject, size_t count) {
  constexpr size_t kRounds = 10;
  Host host(arena, subject, 0);
  host.start();
  Duration connecting;
  Duration closing;
  int64_t descriptors = 0;
  int64_t resident = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<Ends> ends(count);
    const Instant begin = steady_now();
    for (size_t first = 0; first < count; first += kListeners) {
      connect_to_self(host, std::span(ends).subspan(first, std::min(kListeners, count - first)));
    }
    connecting = connecting + (steady_now() - begin);
    for (const Ends& one : ends) Loop(host, one, kPingBytes).pass(kPingBytes, kPingBytes);
    const Instant end = steady_now();
    for (const Ends& one : ends) host.close(one);
    closing = closing + (steady_now() - end);
    if (round > 0) continue;
    descriptors = open_descriptors();
    resident = resident_kb();
  }
  const auto made = static_cast<double>(count * kRounds);
  return {{"test", "connections"},
          {"connections", count},
          {"rounds", kRounds},
          {"connects_per_s", made / connecting.seconds()},
          {"closes_per_s", made / closing.seconds()},
          {"descriptors_grown", open_descriptors() - descriptors},
          {"resident_kb_grown", resident_kb() - resident}};
}

Json measure_stream(Arena& arena, const nccl::Subject& subject, int rank, Duration length) {
  Host host(arena, subject, rank);
  void* const comm = host.connect_ranks();
  {
    Requests requests(host, comm, kMessageBytes, kInFlight);
    arena.streams[static_cast<size_t>(rank)] =
        rank == 0 ? receive_stream(requests) : send_stream(requests, length);
  }
  host.barrier();
  host.close_rank(comm);
  const auto& [received, sent] = arena.streams;
  const auto bytes = [](const StreamFigures& one) {
    return static_cast<double>(one.messages * kMessageBytes);
  };
  return {{"test", "stream"},
          {"size_bytes", kMessageBytes},
          {"in_flight", kInFlight},
          {"seconds", received.seconds},
          {"messages", received.messages},
          {"gbps", bytes(received) * 8e-9 / received.seconds},
          {"messages_per_s", static_cast<double>(received.messages) / received.seconds},
          {"sender_cpu_s_per_gb", sent.cpu_seconds * 1e9 / bytes(sent)},
          {"receiver_cpu_s_per_gb", received.cpu_seconds * 1e9 / bytes(received)}};
}

Json measure_latency(Arena& arena, const nccl::Subject& subject, int rank, Duration length) {
  Host host(arena, subject, rank);
  const Ends ends = connect_both_ways(arena, host);
  std::vector<double> samples;
  {
    PingEnd end(host, ends);
    if (rank == 0) {
      samples = ping(end, length);
    } else {
      pong(end);
    }
    end.finish();
  }
  host.barrier();
  host.close(ends);
  if (rank != 0) return {};
  const auto percentile = [&](double p) {
    return samples[static_cast<size_t>(p / 100 * static_cast<double>(samples.size() - 1))];
  };
  return {{"test", "latency"},         {"size_bytes", kPingBytes},     {"samples", samples.size()},
          {"min_us", samples.front()}, {"p50_us", percentile(50)},     {"p90_us", percentile(90)},
          {"p99_us", percentile(99)},  {"p99_9_us", percentile(99.9)}, {"max_us", samples.back()}};
}

}  // namespace pacecar::check
