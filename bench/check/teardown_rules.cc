// Rules of aborts, dead peers and ends.
#include <fmt/format.h>

#include <array>

#include "bench/check/host.h"
#include "bench/check/rule.h"
#include "bench/perf/clock.h"

namespace pacecar::check {
namespace {

using nccl::NcclResult;

constexpr size_t kBytes = 1 << 20;
constexpr size_t kRequests = 4;
constexpr size_t kStreamed = 16;  // messages before a rank dies

// Memory is deregistered while requests are outstanding that never complete; then the connection
// is closed. A send that no receive matches may get no request.
void aborts(Host& host) {
  host.over_connection([&](const Ends& ends) {
    Buffer source(host, ends.send, kBytes);
    Buffer target(host, ends.receive, kBytes);
    host.receive(ends.receive, target.whole(2));
    host.try_send(ends.send, source.whole(1));  // another tag: never matched
    source.deregister();
    source.forbid_access();
    target.deregister();
    target.forbid_access();
  });
}

// Keeps messages in flight until `enough` have completed or a call fails.
NcclResult stream(Host& host, void* comm, const Buffer& buffer, size_t enough) {
  std::array<void*, kRequests> requests{};
  size_t completed = 0;
  NcclResult result = NcclResult::kSuccess;
  while (completed < enough && result == NcclResult::kSuccess) {
    for (size_t i = 0; i < kRequests; ++i) {
      if (requests[i] != nullptr) continue;
      const Part part = buffer.part(i * kBytes, kBytes);
      result = host.rank() == 0 ? host.post_receive(comm, std::span(&part, 1), &requests[i])
                                : host.post_send(comm, part, &requests[i]);
      if (result != NcclResult::kSuccess) return result;
    }
    void*& oldest = requests[completed % kRequests];
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
  Buffer buffer(host, comm, kRequests * kBytes);
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

constexpr std::array kRules = {
    Rule{"abort", "with requests outstanding, deregMr and close return, and memory is not touched",
         1, aborts},
    Rule{"dead-receiver", "a sender whose peer is killed gets an error", 2,
         [](Host& host) { notices_a_dead_peer(host, 0); }},
    Rule{"dead-sender", "a receiver whose peer is killed gets an error", 2,
         [](Host& host) { notices_a_dead_peer(host, 1); }},
};

}  // namespace

std::span<const Rule> teardown_rules() { return kRules; }

}  // namespace pacecar::check
