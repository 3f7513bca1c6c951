// Test processes that exchange their libfabric addresses, and helpers that their tests share.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "tests/support/fi_end.h"
#include "tests/support/rank_group.h"

namespace pacecar::test {

// Sizes of eager messages, around the limit, and of offered ones, which take several packets.
inline constexpr size_t kSizes[] = {0,
                                    1,
                                    7,
                                    64,
                                    4096,
                                    16384,
                                    65535,
                                    65536,
                                    fabric::kEagerBytes - 1,
                                    fabric::kEagerBytes,
                                    fabric::kEagerBytes + 1,
                                    600001,
                                    1 << 20};

inline std::vector<uint8_t> pattern(size_t bytes, uint64_t seed) {
  std::vector<uint8_t> made(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (uint8_t& byte : made) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return made;
}

// The addresses of all ranks.
struct World {
  explicit World(Rank& its_rank) : World(its_rank, FiEnd::Options()) {}
  World(Rank& its_rank, const FiEnd::Options& options)
      : rank(its_rank), end(options), peers(static_cast<size_t>(rank.size())) {
    HandleBytes own{};
    const std::vector<uint8_t> name = end.name();
    std::memcpy(own.data(), name.data(), name.size());
    for (int peer = 0; peer < rank.size(); ++peer) rank.give(peer, own);
    for (int peer = 0; peer < rank.size(); ++peer) {
      const HandleBytes theirs = rank.take(peer);
      peers[static_cast<size_t>(peer)] = end.add(theirs.data());
    }
  }
  fi_addr_t other() const { return peers[static_cast<size_t>(1 - rank.rank())]; }
  bool first() const { return rank.rank() == 0; }
  // Waits for all ranks; answers their requests meanwhile.
  void meet() {
    std::thread waiter([this] {
      rank.barrier();
      done = true;
    });
    for (const Waiting waiting; !done; waiting.pause()) end.progress();
    waiter.join();
    done = false;
  }

  Rank& rank;
  FiEnd end;
  std::vector<fi_addr_t> peers;
  std::atomic<bool> done{false};
};

inline void with_two(const std::function<void(World&)>& body, const FiEnd::Options& options = {}) {
  expect_processes_pass(2, [&](Rank& rank) {
    World world(rank, options);
    body(world);
    world.meet();
  });
}

inline void send_tagged(World& world, const std::vector<uint8_t>& bytes, uint64_t tag) {
  int context = 0;
  world.end.until_taken([&] {
    return fi_tsend(world.end.endpoint, bytes.data(), bytes.size(), nullptr, world.other(), tag,
                    &context);
  });
  EXPECT_EQ(world.end.outcome_of(&context).error, 0);
}

inline void expect_tagged(World& world, const std::vector<uint8_t>& bytes, uint64_t tag) {
  std::vector<uint8_t> place(bytes.size() + 1, 0xee);
  int context = 0;
  world.end.until_taken([&] {
    return fi_trecv(world.end.endpoint, place.data(), bytes.size(), nullptr, world.other(), tag, 0,
                    &context);
  });
  const FiOutcome outcome = world.end.outcome_of(&context);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(outcome.length, bytes.size());
  EXPECT_EQ(outcome.tag, tag);
  EXPECT_EQ(outcome.source, world.other());
  EXPECT_EQ(place.back(), 0xee);
  place.pop_back();
  EXPECT_TRUE(place == bytes) << bytes.size() << " bytes";
}

}  // namespace pacecar::test
