// The libfabric provider with a hostile peer (fi_hostile_peer.h): no byte outside of the registered
// and posted memory is written, every operation with that peer ends, and a good peer is not
// disturbed.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <optional>
#include <vector>

#include "tests/support/draws.h"
#include "tests/support/fi_hostile_peer.h"
#include "tests/support/fi_world.h"
#include "tests/support/hostile_seeds.h"
#include "tests/support/own_network.h"

namespace pacecar::test::fi_hostile_test {
namespace {

enum RankOf : int { kVictim, kGood, kHostile };
constexpr uint64_t kReadKey = 5;
constexpr uint64_t kWriteKey = 6;
constexpr uint64_t kGoodTag = uint64_t{1} << 40;
constexpr uint64_t kEnd = uint64_t{1} << 41;
constexpr size_t kMargin = 4096;
constexpr size_t kInside = 4096;
constexpr uint8_t kUntouched = 0xa5;

// Memory with a margin on either side that must not change.
struct Guarded {
  explicit Guarded(size_t size) : bytes(size + 2 * kMargin, kUntouched) {}
  uint8_t* inside() { return bytes.data() + kMargin; }
  bool margins_whole() const {
    const auto whole = [](uint8_t byte) { return byte == kUntouched; };
    return std::all_of(bytes.begin(), bytes.begin() + kMargin, whole) &&
           std::all_of(bytes.end() - kMargin, bytes.end(), whole);
  }

  std::vector<uint8_t> bytes;
};

HandleBytes as_handle(const void* bytes, size_t size) {
  HandleBytes handle{};
  std::memcpy(handle.data(), bytes, size);
  return handle;
}

// The victim's operations with the hostile peer: each must complete, with any result.
class HostileOperations {
 public:
  HostileOperations(FiEnd& end, fi_addr_t hostile) : end_(end), hostile_(hostile) {
    for (size_t i = 0; i < kCount; ++i) {
      buffers_.emplace_back(kLargest);
      free_.push_back(i);
    }
  }
  void start(Prng& prng) {
    if (free_.empty()) return;
    const size_t at = free_.back();
    Guarded& buffer = buffers_[at];
    const size_t sizes[] = {0,       1, 100, 4096, fabric::kEagerBytes, fabric::kEagerBytes + 1,
                            kLargest};
    const size_t size = sizes[prng.below(std::size(sizes))];
    uint8_t* const data = buffer.inside();
    const uint64_t key = prng.below(3);
    ssize_t result = 0;
    switch (prng.below(5)) {
      case 0:
        result = fi_tsend(end_.endpoint, data, size, nullptr, hostile_, prng.below(9), &buffer);
        break;
      case 1:
        result = fi_trecv(end_.endpoint, data, size, nullptr, hostile_, prng.below(9), 0, &buffer);
        break;
      case 2:
        result = fi_write(end_.endpoint, data, size, nullptr, hostile_, 0, key, &buffer);
        break;
      case 3:
        result = fi_read(end_.endpoint, data, size, nullptr, hostile_, 0, key, &buffer);
        break;
      default:
        result = fi_fetch_atomic(end_.endpoint, data, 1, nullptr, data + 8, nullptr, hostile_, 0,
                                 key, FI_UINT64, FI_SUM, &buffer);
        break;
    }
    if (result == 0) {
      free_.pop_back();
    } else {
      EXPECT_EQ(result, -FI_EAGAIN);
    }
  }
  // Whether `outcome` completes one of these operations.
  bool ended(const FiOutcome& outcome) {
    for (size_t i = 0; i < kCount; ++i) {
      if (outcome.context != &buffers_[i]) continue;
      EXPECT_EQ(std::ranges::count(free_, i), 0) << "an operation completed twice";
      free_.push_back(i);
      EXPECT_TRUE(buffers_[i].margins_whole());
      return true;
    }
    return false;
  }
  // The hostile peer has ended, so all operations with it must complete.
  void end_all() {
    for (Guarded& buffer : buffers_) fi_cancel(&end_.endpoint->fid, &buffer);
    EXPECT_TRUE(eventually([this] {
      if (const auto outcome = end_.poll()) ended(*outcome);
      return free_.size() == kCount;
    })) << "an operation with the hostile peer hangs";
  }

 private:
  static constexpr size_t kCount = 24;
  static constexpr size_t kLargest = 800000;

  FiEnd& end_;
  const fi_addr_t hostile_;
  std::deque<Guarded> buffers_;
  std::vector<size_t> free_;
};

void be_victim(Rank& rank, uint64_t seed) {
  FiEnd end;
  const auto name = end.name();
  rank.give(kGood, as_handle(name.data(), name.size()));
  rank.give(kHostile, as_handle(name.data(), name.size()));
  const HandleBytes good_name = rank.take(kGood);
  const HandleBytes hostile_name = rank.take(kHostile);
  const fi_addr_t good = end.add(good_name.data());
  HostileOperations operations(end, end.add(hostile_name.data()));

  Guarded read_only(kInside);
  Guarded written(kInside);
  Guarded messages(kInside);
  fid_mr* region = nullptr;
  must(fi_mr_reg(end.domain, read_only.inside(), kInside, FI_REMOTE_READ, 0, kReadKey, 0, &region,
                 nullptr),
       "fi_mr_reg");
  end.share(written.inside(), kInside, kWriteKey);

  Prng prng(seed);
  std::vector<uint8_t> in(600000);
  uint64_t round = 0;
  uint64_t over = 0;
  int anybodys = 0;
  bool receiving = false;
  bool hostile_gone = false;
  end.until_taken(
      [&] { return fi_trecv(end.endpoint, &over, sizeof over, nullptr, good, kEnd, 0, &over); });
  end.until_taken([&] {
    return fi_recv(end.endpoint, messages.inside(), kInside, nullptr, FI_ADDR_UNSPEC, &anybodys);
  });
  // The message with the tag kEnd may complete before the first message, which is longer.
  for (Waiting idle; !hostile_gone || round == 0;) {
    if (!receiving) {
      receiving = true;
      end.until_taken([&] {
        return fi_trecv(end.endpoint, in.data(), in.size(), nullptr, good, kGoodTag + round, 0,
                        &in);
      });
    }
    if (prng.below(4) == 0) operations.start(prng);
    const auto outcome = end.poll();
    outcome ? idle.restart() : idle.pause();
    if (!outcome || operations.ended(*outcome)) continue;
    if (outcome->context == &in) {
      ASSERT_EQ(outcome->error, 0);
      const auto expected = pattern(outcome->length, round);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), in.begin())) << round;
      ++round;
      receiving = false;
    } else if (outcome->context == &anybodys) {
      end.until_taken([&] {
        return fi_recv(end.endpoint, messages.inside(), kInside, nullptr, FI_ADDR_UNSPEC,
                       &anybodys);
      });
    } else if (outcome->context == &over) {
      ASSERT_EQ(outcome->error, 0);
      hostile_gone = true;
    }
  }
  EXPECT_GT(round, 0U);
  operations.end_all();
  EXPECT_TRUE(written.margins_whole() && messages.margins_whole());
  EXPECT_EQ(std::ranges::count(read_only.bytes, kUntouched),
            static_cast<ptrdiff_t>(read_only.bytes.size()));
  fi_close(&region->fid);
  rank.barrier();
}

void be_good(Rank& rank) {
  FiEnd end;
  const auto name = end.name();
  rank.give(kVictim, as_handle(name.data(), name.size()));
  const HandleBytes victim_name = rank.take(kVictim);
  const fi_addr_t victim = end.add(victim_name.data());
  const auto send = [&](const std::vector<uint8_t>& bytes, uint64_t tag) {
    int context = 0;
    end.until_taken([&] {
      return fi_tsend(end.endpoint, bytes.data(), bytes.size(), nullptr, victim, tag, &context);
    });
    must(-end.outcome_of(&context).error, "fi_tsend to the endpoint that is attacked");
  };
  std::atomic<bool> gone = false;
  std::thread waiter([&] {
    rank.take(kHostile);
    gone = true;
  });
  uint64_t round = 0;
  do {  // at least once: the hostile peer may have ended already
    send(pattern(round % 3 == 0 ? 600000 : round % 5000, round), kGoodTag + round);
    ++round;
  } while (!gone);
  waiter.join();
  send(std::vector<uint8_t>(sizeof(uint64_t)), kEnd);
  rank.barrier();
}

void run_hostile_peer(Rank& rank, uint64_t seed, uint64_t attacks) {
  const HandleBytes victim = rank.take(kVictim);
  {
    Prng prng(seed);
    FiHostilePeer hostile(victim.data(), seed);
    rank.give(kVictim, as_handle(hostile.socket_name().data(), hostile.socket_name().size()));
    bool met = false;
    for (uint64_t i = 0; i < attacks; ++i) {
      if (!met) hostile.connect(prng.below(4) != 0);
      met = hostile.attack();
    }
    EXPECT_GT(hostile.attempts(), 1U);
  }
  rank.give(kGood, HandleBytes{});
  rank.barrier();
}

TEST(FiHostile, AHostilePeerDisturbsNoOtherPeer) {
  const auto [first, count] = hostile_seeds(tests_all() ? 6 : 2);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    expect_processes_pass(3, [&](Rank& rank) {
      if (rank.rank() == kVictim) be_victim(rank, seed);
      if (rank.rank() == kGood) be_good(rank);
      if (rank.rank() == kHostile) run_hostile_peer(rank, seed, 400);
    });
  }
}

// The victim keeps a peer with buffers for each name: greetings alone must not use up its memory.
TEST(FiHostile, PeerNamesPerHostAreLimited) {
  expect_processes_pass(1, [](Rank&) {
    (void)enter_own_network();  // thousands of ports stay in TIME_WAIT
    constexpr uint16_t kNames = 1100;
    constexpr size_t kOpen = 1024;
    FiEnd victim;
    FiHostilePeer hostile(victim.name().data(), 1);
    size_t answered = 0;
    for (uint16_t port = 1; port <= kNames; ++port) {
      answered += hostile.is_answered_for_good(port, [&] { victim.progress(); }) ? 1 : 0;
    }
    // On a busy machine the victim's patience with the first names may be over.
    EXPECT_GE(answered, kOpen);
    EXPECT_LE(answered - hostile.ended(), kOpen);
    if (hostile.ended() > 0) return;
    EXPECT_TRUE(hostile.is_answered(1, [&] { victim.progress(); })) << "the name is known";
    victim.add(hostile.socket_name(kNames).data());
    EXPECT_TRUE(hostile.is_answered(kNames, [&] { victim.progress(); }))
        << "the application has added the name";
  });
}

TEST(FiHostile, ConnectionsPerPeerNameAreLimited) {
  expect_processes_pass(1, [](Rank&) {
    constexpr size_t kCalls = 8;
    FiEnd victim;
    FiHostilePeer hostile(victim.name().data(), 1);
    size_t answered = 0;
    for (size_t i = 0; i < 3 * kCalls; ++i) {
      answered += hostile.is_answered_for_good(1, [&] { victim.progress(); }) ? 1 : 0;
    }
    EXPECT_EQ(answered, kCalls);
  });
}

// Both sides connect. The peer's connection ends first, then ours, which the peer never accepted.
TEST(FiHostile, ASendFailsWhenThePeerEndsWhileConnecting) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd victim;
    std::optional<FiHostilePeer> hostile(std::in_place, victim.name().data(), 1);
    const fi_addr_t address = victim.add(hostile->socket_name().data());
    const std::vector<uint8_t> bytes(fabric::kEagerBytes + 1);
    int context = 0;
    ASSERT_EQ(fi_tsend(victim.endpoint, bytes.data(), bytes.size(), nullptr, address, 1, &context),
              0);
    hostile->hang_up_during_its_call([&] { victim.progress(); });
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
         std::chrono::steady_clock::now() < until;) {
      victim.progress();
    }
    hostile.reset();
    EXPECT_EQ(victim.outcome_of(&context).error, FI_ECONNRESET);
  });
}

// Another user of the peer's host knows its name.
TEST(FiHostile, AGreetingInTheNameOfALivePeerIsNotAnswered) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd victim;
    FiEnd good;
    const fi_addr_t to_victim = good.add(victim.name().data());
    const auto progress = [&] {
      victim.progress();
      good.progress();
    };
    const auto expect_message = [&] {
      int sent = 0;
      int received = 0;
      uint64_t value = 0;
      ASSERT_EQ(
          fi_trecv(victim.endpoint, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, 1, 0, &received),
          0);
      good.until_taken([&] {
        return fi_tsend(good.endpoint, &kGoodTag, sizeof kGoodTag, nullptr, to_victim, 1, &sent);
      });
      EXPECT_TRUE(eventually([&] {
        progress();
        return value == kGoodTag;
      }));
      EXPECT_EQ(good.outcome_of(&sent).error, 0);
      EXPECT_EQ(victim.outcome_of(&received).error, 0);
    };
    expect_message();
    FiHostilePeer hostile(victim.name().data(), 1);
    sockaddr_in name{};
    std::memcpy(&name, good.name().data(), sizeof name);
    EXPECT_FALSE(hostile.is_answered(ntohs(name.sin_port), progress));
    expect_message();
  });
}

size_t address_space_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  statm >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(FiHostile, SilentConnectionsAreLimited) {
  expect_processes_pass(1, [](Rank&) {
    constexpr size_t kInboxBytes = fabric::kMaxMessages * fabric::kMessageBytes;
    constexpr size_t kConnections = 200;
    constexpr size_t kAtOnce = 64;
    mallopt(M_ARENA_MAX, 1);  // a thread's first allocation would add 64 MiB of address space
    FiEnd victim;
    FiHostilePeer hostile(victim.name().data(), 1);
    const auto progress = [&] { victim.progress(); };
    ASSERT_TRUE(hostile.is_answered(1, progress));
    const size_t before = address_space_bytes();
    const auto silent = hostile.be_silent(kConnections, progress);
    const size_t grown = address_space_bytes() - before;
    EXPECT_GE(grown, kAtOnce * kInboxBytes) << "the silent connections have taken no memory";
    EXPECT_LE(grown, 2 * kAtOnce * kInboxBytes);
  });
}

}  // namespace
}  // namespace pacecar::test::fi_hostile_test
