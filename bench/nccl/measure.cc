#include "bench/nccl/measure.h"

#include <algorithm>
#include <optional>

#include "bench/perf/clock.h"

namespace pacecar::nccl {
namespace {

using perf::process_cpu_time;
using perf::steady_now;

constexpr Duration kWarmUp = Duration::from_ms(300);
constexpr size_t kMaxSamples = 4'000'000;

// Counts messages once the warm-up is over.
class Window {
 public:
  void count(Instant now) {
    last_ = now;
    if (counting_) {
      ++messages_;
    } else if (!warming_) {
      warming_ = true;
      begin_ = now;
    } else if (now - begin_ >= kWarmUp) {
      counting_ = true;
      begin_ = now;
      cpu_begin_ = process_cpu_time();
    }
  }

  bool has_counted() const { return messages_ > 0; }
  StreamReport report() const {
    if (!counting_) return {};
    return {messages_, last_ - begin_, process_cpu_time() - cpu_begin_};
  }

 private:
  bool warming_ = false;
  bool counting_ = false;
  Instant begin_;
  Instant last_;
  Duration cpu_begin_;
  uint64_t messages_ = 0;
};

// The requests of one connection, oldest first. A request's slot is its number modulo the bound.
class InFlight {
 public:
  InFlight(const MessageSlots& slots, size_t bound) : slots_(slots), requests_(bound) {}

  size_t count() const { return started_ - done_; }
  bool full() const { return count() == requests_.size(); }
  size_t next_slot() const { return started_ % requests_.size(); }
  // False: the plugin returned no request.
  bool add(void* request) {
    if (request == nullptr) return false;
    requests_[next_slot()] = request;
    ++started_;
    return true;
  }
  // The bytes of the oldest request, once it is done.
  std::optional<size_t> take() {
    size_t bytes = 0;
    if (count() == 0 || !slots_.test(requests_[done_ % requests_.size()], &bytes)) return {};
    ++done_;
    return bytes;
  }

 private:
  const MessageSlots& slots_;
  std::vector<void*> requests_;
  size_t started_ = 0;
  size_t done_ = 0;
};

// One side of a ping-pong. Receives are posted ahead and sends finish in passing, as a collective's
// proxy does it: only the message itself is waited for. The oldest send is tested meanwhile,
// because a plugin may move nothing but within test.
class PingEnd {
 public:
  PingEnd(const MessageSlots& out, const MessageSlots& in)
      : out_(out), in_(in), sends_(out, kPingsAhead), receives_(in, kPingsAhead) {
    while (!receives_.full()) post();
  }

  void send(size_t bytes) {
    while (sends_.full()) sends_.take();
    while (!sends_.add(out_.send(sends_.next_slot(), bytes))) {
    }
  }
  // Posts another receive in the place of the one that was filled, unless that was the last but
  // those that are posted.
  size_t receive() {
    std::optional<size_t> bytes;
    while (!(bytes = receives_.take())) sends_.take();
    if (*bytes > 0) post();
    return *bytes;
  }
  void finish() {
    while (sends_.count() > 0) sends_.take();
  }

 private:
  void post() {
    while (!receives_.add(in_.receive(receives_.next_slot()))) {
    }
  }

  const MessageSlots& out_;
  const MessageSlots& in_;
  InFlight sends_;
  InFlight receives_;
};

}  // namespace

StreamReport stream_send(const MessageSlots& slots, size_t bytes, size_t in_flight,
                         Duration length) {
  InFlight requests(slots, in_flight);
  Window window;
  // From the first message on: the receiver may come late.
  std::optional<Instant> end;
  size_t ends_sent = 0;
  while (ends_sent < in_flight || requests.count() > 0) {
    const Instant now = steady_now();
    const bool ending = ends_sent > 0 || (end && now >= *end && window.has_counted());
    while (!requests.full() && ends_sent < in_flight &&
           requests.add(slots.send(requests.next_slot(), ending ? 0 : bytes))) {
      if (ending) ++ends_sent;
    }
    if (requests.take().value_or(0) == 0) continue;
    if (!end) end = now + kWarmUp + length;
    window.count(now);
  }
  return window.report();
}

StreamReport stream_receive(const MessageSlots& slots, size_t in_flight) {
  InFlight requests(slots, in_flight);
  Window window;
  size_t ends_received = 0;
  // After the first end, only the other ends are still to come.
  const auto more_to_post = [&] {
    return ends_received == 0 ? !requests.full() : requests.count() + ends_received < in_flight;
  };
  while (ends_received < in_flight) {
    while (more_to_post() && requests.add(slots.receive(requests.next_slot()))) {
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

std::vector<double> ping(const MessageSlots& out, const MessageSlots& in, size_t bytes,
                         Duration length) {
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

void pong(const MessageSlots& out, const MessageSlots& in) {
  PingEnd end(out, in);
  for (size_t ends = 0; ends < kPingsAhead;) {
    const size_t bytes = end.receive();
    end.send(bytes);
    if (bytes == 0) ++ends;
  }
  end.finish();
}

}  // namespace pacecar::nccl
