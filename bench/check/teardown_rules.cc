// Rules of aborts and dead peers.
#include <fmt/format.h>

#include <array>

#include "bench/check/host.h"
#include "bench/check/rule.h"
#include "bench/perf/clock.h"

namespace pacecar::check {
namespace {

using nccl::NcclResult;

constexpr size_t kBytes = 1 << 20;
constexpr size_t kOutstanding = 4;  // requests of a stream
constexpr size_t kStreamed = 16;    // messages before a rank dies

// Memory is deregistered while requests are outstanding that never complete; then the connection
// is closed. A send that no receive matches may get no request.
void aborts(Host& host) {
  host.over_connection(kBytes, [&](Loop& loop) {
    host.receive(loop.ends.receive, loop.target.whole(2));
    host.try_send(loop.ends.send, loop.source.whole(1));  // another tag: never matched
    for (Buffer* const one : {&loop.source, &loop.target}) {
      one->deregister();
      one->forbid_access();
    }
  });
}

// Keeps messages in flight until `enough` have completed or a call fails.
NcclResult stream(Host& host, void* comm, const Buffer& buffer, size_t enough) {
  std::array<void*, kOutstanding> requests{};
  size_t completed = 0;
  NcclResult result = NcclResult::kSuccess;
  while (completed < enough && result == NcclResult::kSuccess) {
    for (size_t i = 0; i < kOutstanding; ++i) {
      if (requests[i] != nullptr) continue;
      result = host.post_rank(comm, buffer.part(i * kBytes, kBytes), &requests[i]);
      if (result != NcclResult::kSuccess) return result;
    }
    void*& oldest = requests[completed % kOutstanding];
    int done = 0;
    std::array<int, 8> sizes{};
    if (oldest != nullptr) result = host.net().test(oldest, &done, sizes.data());
    if (done == 1) {
      oldest = nullptr;
      ++completed;
    }
  }
  return result;
}

void notices_a_dead_peer(Host& host, int victim) {
  void* const comm = host.connect_ranks();
  Buffer buffer(host, comm, kOutstanding * kBytes);
  if (host.rank() == victim) {
    expect_success(stream(host, comm, buffer, kStreamed), "a request before the peer dies");
    host.die();
  }
  const Instant start = perf::steady_now();
  const NcclResult result = stream(host, comm, buffer, ~size_t{0});
  expect(result != NcclResult::kSuccess, "requests to a dead peer succeed");
  host.note(fmt::format("result {} {:.1f} s after the stream's start", static_cast<int>(result),
                        (perf::steady_now() - start).seconds()));
  buffer.deregister();
  host.close_rank(comm);
}

constexpr Rule kRules[] = {
    {"abort", "with requests outstanding, deregMr and close return, and memory is not touched",
     aborts},
    {"dead-receiver", "a sender whose peer is killed gets an error",
     [](Host& host) { notices_a_dead_peer(host, 0); }, 2},
    {"dead-sender", "a receiver whose peer is killed gets an error",
     [](Host& host) { notices_a_dead_peer(host, 1); }, 2},
};

}  // namespace

std::span<const Rule> teardown_rules() { return kRules; }

}  // namespace pacecar::check
