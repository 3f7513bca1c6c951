// Rules of many connections and several threads.
#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <vector>

#include "bench/check/host.h"
#include "bench/check/rule.h"
#include "bench/perf/pattern.h"

namespace pacecar::check {
namespace {

using nccl::NcclResult;
using perf::fill_pattern;
using perf::find_mismatch;

constexpr size_t kThreads = 4;
static_assert(kThreads <= kMaxListeners);
constexpr size_t kBytes = 1 << 20;

// Runs `body(index)` in kThreads threads; throws what the first failed one has thrown.
template <typename Body>
void in_threads(const Body& body) {
  std::array<std::future<void>, kThreads> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads[i] = std::async(std::launch::async, [&body, i] { body(i); });
  }
  for (std::future<void>& thread : threads) thread.get();
}

// Each thread makes its connections, uses all of them at once, and closes them, round by round.
void many_in_several_threads(Host& host) {
  constexpr size_t kEach = 8;
  constexpr size_t kRounds = 3;
  constexpr size_t kFewBytes = 40'000;
  host.start();
  const int most = host.properties(host.device()).max_connections;
  const size_t each = std::min(kEach, static_cast<size_t>(most) / kThreads);
  if (each == 0) throw NotOffered("maxComms is less than one for each of 4 threads");
  in_threads([&](size_t thread) {
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<Ends> all;
      for (size_t i = 0; i < each; ++i) all.push_back(host.connect_self());
      {
        std::deque<Loop> loops;
        std::vector<void*> requests;
        const auto number = [&](size_t i) { return (thread * kRounds + round) * kEach + i; };
        for (const Ends& ends : all) {
          const Loop& loop = loops.emplace_back(host, ends, kFewBytes);
          requests.push_back(host.receive(ends.receive, loop.target.whole()));
        }
        for (size_t i = 0; i < each; ++i) {
          fill_pattern(loops[i].source.bytes(), number(i));
          requests.push_back(host.send(all[i].send, loops[i].source.whole()));
        }
        host.finish(requests);
        for (size_t i = 0; i < each; ++i) {
          expect(!find_mismatch(loops[i].target.bytes(), number(i)),
                 "a connection delivers bytes of another one");
        }
      }
      for (const Ends& ends : all) host.close(ends);
    }
  });
}

// Each thread of the receiving rank accepts from its own listener several times.
void listens_again(Host& host) {
  constexpr size_t kRounds = 5;
  const std::vector<Listening> listening = host.listen_for_ranks(kThreads);
  in_threads([&](size_t thread) {
    for (uint64_t round = 0; round < kRounds; ++round) {
      void* const comm = host.join_ranks(listening, thread);
      {
        const Buffer buffer(host, comm, kBytes);
        if (host.rank() == 0) {
          host.finish(host.receive(comm, buffer.whole()));
          expect(!find_mismatch(buffer.bytes(), round * kThreads + thread),
                 "a listener that is used again delivers bytes of another connection");
        } else {
          fill_pattern(buffer.bytes(), round * kThreads + thread);
          host.finish(host.send(comm, buffer.whole()));
        }
      }
      host.close_rank(comm);
    }
  });
  host.close_listens(listening);
}

// Posts up to `count` requests; fewer if the plugin knows already that the peer has closed.
void post_requests(Host& host, void* comm, const Part& part, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void* request = nullptr;
    const NcclResult result = host.post_rank(comm, part, &request);
    if (result != NcclResult::kSuccess || request == nullptr) return;
  }
}

// Both ends close at once with messages outstanding; memory is deregistered first.
void closes_in_flight(Host& host) {
  constexpr size_t kRounds = 4;
  constexpr size_t kRequests = 8;
  for (size_t round = 0; round < kRounds; ++round) {
    const std::vector<Listening> listening = host.listen_for_ranks(kThreads);
    in_threads([&](size_t thread) {
      void* const comm = host.join_ranks(listening, thread);
      Buffer buffer(host, comm, kBytes);
      post_requests(host, comm, buffer.whole(), kRequests);
      buffer.deregister();
      buffer.forbid_access();
      host.close_rank(comm);
    });
    host.close_listens(listening);
    host.barrier();
  }
}

constexpr Rule kRules[] = {
    {"crowd", "several threads make, use and close tens of connections", many_in_several_threads},
    {"listen-again", "a listener accepts one connection after another, in several threads",
     listens_again, 2},
    {"close-in-flight", "several threads close connections with requests in flight",
     closes_in_flight, 2},
};

}  // namespace

std::span<const Rule> crowd_rules() { return kRules; }

}  // namespace pacecar::check
