// Rules of loading, properties and connections: one, many in several threads, aborts, dead peers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <future>
#include <set>
#include <vector>

#include "bench/check/host.h"
#include "bench/cli/clock.h"
#include "bench/perf/pattern.h"

namespace pacecar::check {
namespace {

using nccl::NcclResult;
using nccl::NetPropertiesV12;
using perf::fill_pattern;
using perf::find_mismatch;

constexpr size_t kConnections = 32;
constexpr int kReopened = 50;
constexpr int kFewDescriptors = 4;

void initialises(Host& host) {
  host.start();
  expect(host.net().name != nullptr && *host.net().name != '\0', "its name is empty");
  host.finalize();
  host.start();  // NCCL makes communicators one after another
}

void holds_two_communicators(Host& host) {
  if (host.net().version < 11) throw NotOffered("versions before 11 know no communicators");
  host.start();
  void* const other = host.another_context();
  host.close(host.connect_self());
  expect_success(host.net().finalize(other), "finalize of one of two communicators");
  host.close(host.connect_self());
}

void finalizes_nothing(Host& host) {
  if (host.net().version < 11) throw NotOffered("its version has no finalize");
  expect_success(host.net().finalize(nullptr), "finalize after an init that failed (NULL)");
}

bool same(const NetPropertiesV12& a, const NetPropertiesV12& b) {
  return a.pointer_support == b.pointer_support && a.guid == b.guid && a.speed == b.speed &&
         a.port == b.port && std::memcmp(&a.latency, &b.latency, sizeof a.latency) == 0 &&
         a.max_connections == b.max_connections && a.max_receives == b.max_receives &&
         a.registration_is_global == b.registration_is_global && a.force_flush == b.force_flush &&
         a.device_type == b.device_type && a.device_version == b.device_version &&
         a.virtual_device.count == b.virtual_device.count && a.max_p2p_bytes == b.max_p2p_bytes &&
         a.max_collective_bytes == b.max_collective_bytes &&
         a.max_multi_request_size == b.max_multi_request_size && a.rail == b.rail &&
         a.plane == b.plane && a.pci_path == b.pci_path;
}

// NCCL does not initialise the structure: a property that the plugin does not write is garbage.
void fills_properties(Host& host) {
  host.start();
  NetPropertiesV12 ones, twos;
  std::memset(static_cast<void*>(&ones), 0x11, sizeof ones);
  std::memset(static_cast<void*>(&twos), 0x22, sizeof twos);
  expect_success(host.net().getProperties(host.device(), &ones), "getProperties");
  expect_success(host.net().getProperties(host.device(), &twos), "getProperties");
  expect(same(ones, twos), "some property keeps what the caller's memory held");
}

void properties_make_sense(Host& host) {
  host.start();
  const NetPropertiesV12 own = host.properties(host.device());
  expect(own.name != nullptr && *own.name != '\0', "its device has no name");
  expect(own.max_connections > 0, "maxComms is not positive");
  expect(own.max_receives >= 1 && own.max_receives <= 8, "maxRecvs is not 1 to 8");
  expect((own.pointer_support & nccl::kPointerHost) != 0, "host memory is not supported");
  expect(own.max_p2p_bytes >= 1 && own.max_p2p_bytes <= nccl::kMaxTransferBytes,
         "maxP2pBytes is not 1 B to 1 TiB");
  expect(own.virtual_device.count >= 1, "vProps names no device, not even itself");
  const std::string speed =
      own.speed > 0 ? fmt::format("{} Mb/s", own.speed) : "no speed: NCCL takes it for 10 Gb/s";
  host.note(fmt::format("{}, {}, maxComms {}, maxRecvs {}", own.name, speed, own.max_connections,
                        own.max_receives));
}

void names_devices_apart(Host& host) {
  host.start();
  const int count = host.device_count();
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.insert(host.properties(i).name);
  expect(names.size() == static_cast<size_t>(count), "two devices have the same name");
  host.note(fmt::format("{} devices", count));
}

void writes_a_handle_only(Host& host) {
  host.start();
  host.close_listen(host.listen().comm);
}

// One thread polls connect and accept in turn. A call that blocks never returns.
void does_not_block(Host& host) {
  host.start();
  Listening listening = host.listen();
  Ends ends;
  for (int i = 0; i < 1000 && ends.send == nullptr; ++i) {
    ends.send = host.try_connect(listening.handle);
  }
  poll_until("both ends", [&] { return host.try_both(listening.handle, listening.comm, &ends); });
  host.close_listen(listening.comm);
  host.close(ends);
}

void expect_works(const Host& host, const Ends& ends, uint64_t number) {
  expect(Loop(host, ends, 10'000).carries(number), "a connection delivers bytes of another one");
}

void connects_many(Host& host) {
  host.start();
  const int most = host.properties(host.device()).max_connections;
  const size_t count = std::min(kConnections, static_cast<size_t>(most));
  std::vector<Listening> listening(count);
  std::vector<Ends> ends(count);
  for (Listening& one : listening) one = host.listen();
  poll_until("all connections", [&] {
    size_t ready = 0;
    for (size_t i = 0; i < count; ++i) {
      ready += host.try_both(listening[i].handle, listening[i].comm, &ends[i]) ? 1 : 0;
    }
    return ready == count;
  });
  host.close_listens(listening);
  for (size_t i = 0; i < count; ++i) expect_works(host, ends[i], i);
  for (size_t i = 0; i < count; ++i) host.close(ends[i]);
}

void gives_everything_back(Host& host) {
  host.start();
  host.close(host.connect_self());
  const auto before = open_descriptors();
  for (int i = 0; i < kReopened; ++i) {
    const Ends ends = host.connect_self();
    expect_works(host, ends, static_cast<uint64_t>(i));
    host.close(ends);
  }
  const auto more = open_descriptors() - before;
  expect(more <= kFewDescriptors,
         fmt::format("after {} closed connections {} more file descriptors are open", kReopened,
                     more));
}

void registers_from_another_thread(Host& host) {
  constexpr size_t kBytes = 1 << 16;
  host.over_connection(kBytes, [&](const Loop& loop) {
    std::future<void> service = std::async(std::launch::async, [&] {
      for (int i = 0; i < 200; ++i) const Buffer brief(host, loop.ends.send, kBytes);
    });
    for (uint64_t i = 0; i < 200; ++i) {
      expect(loop.carries(i), "bytes are wrong while memory is registered");
    }
    service.get();
  });
}

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
  const Instant start = cli::steady_now();
  const NcclResult result = stream(host, comm, buffer, ~size_t{0});
  expect(result != NcclResult::kSuccess, "requests to a dead peer succeed");
  host.note(fmt::format("result {} {:.1f} s after the stream's start", static_cast<int>(result),
                        (cli::steady_now() - start).seconds()));
  buffer.deregister();
  host.close_rank(comm);
}

constexpr Rule kRules[] = {
    {"init", "init succeeds, and again after finalize", initialises},
    {"two-communicators", "a second communicator does not disturb the first",
     holds_two_communicators},
    {"finalize-null", "finalize accepts NULL, after an init that failed", finalizes_nothing},
    {"properties-filled", "every property is written", fills_properties},
    {"properties", "properties are within NCCL's bounds", properties_make_sense},
    {"names", "every device has a name of its own", names_devices_apart},
    {"handle", "a handle has 128 bytes", writes_a_handle_only},
    {"non-blocking", "connect and accept return at once, with NULL until ready", does_not_block},
    {"connections", "many connections at once find their own listeners", connects_many},
    {"reopen", "what is closed gives its file descriptors back", gives_everything_back},
    {"register-race", "memory is registered while another thread sends",
     registers_from_another_thread},
    {"crowd", "several threads make, use and close tens of connections", many_in_several_threads},
    {"listen-again", "a listener accepts one connection after another, in several threads",
     listens_again, 2},
    {"close-in-flight", "several threads close connections with requests in flight",
     closes_in_flight, 2},
    {"abort", "with requests outstanding, deregMr and close return, and memory is not touched",
     aborts},
    {"dead-receiver", "a sender whose peer is killed gets an error",
     [](Host& host) { notices_a_dead_peer(host, 0); }, 2},
    {"dead-sender", "a receiver whose peer is killed gets an error",
     [](Host& host) { notices_a_dead_peer(host, 1); }, 2},
};

}  // namespace

std::span<const Rule> connection_rules() { return kRules; }

}  // namespace pacecar::check
