// The thread of a libfabric domain, which sends what the application leaves unsent.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fi_world.h"

namespace pacecar::test::fi_provider_keeper_test {
namespace {

using Clock = std::chrono::steady_clock;

std::set<std::string> threads_of_process() {
  std::set<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path());
  }
  return threads;
}

// How often the thread has fallen asleep.
uint64_t sleeps_of(const std::string& thread) {
  const std::string label = "voluntary_ctxt_switches:";
  std::ifstream status(thread + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(label)) return std::stoull(line.substr(label.size()));
  }
  throw std::runtime_error("there is no such thread");
}

// Calls for so long that a thread that looks each millisecond falls asleep again. It also stops
// looking when a busy machine lets the caller wait; so only on an idle one this shows that it does
// not look. tests/unit/transport/engine/progress_driver_test.cc shows it everywhere.
bool sleeps_while_called(World& world, const std::string& thread) {
  const uint64_t before = sleeps_of(thread);
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::milliseconds(100);) {
    world.end.progress();
  }
  return sleeps_of(thread) == before;
}

TEST(FiProviderKeeper, ItSleepsWhenAllIsSentAlthoughTheApplicationCalls) {
  with_two([](World& world) {
    const std::vector<uint8_t> byte = {1};
    if (!world.first()) return expect_tagged(world, byte, 0);
    const std::set<std::string> before = threads_of_process();
    send_tagged(world, byte, 0);  // it waits for the connection, so the thread is started
    std::set<std::string> started = threads_of_process();
    std::erase_if(started, [&](const std::string& thread) { return before.contains(thread); });
    EXPECT_EQ(started.size(), 1U);
    for (const std::string& thread : started) {
      const Waiting waiting;
      while (!sleeps_while_called(world, thread) && !waiting.hangs()) {
      }
      EXPECT_FALSE(waiting.hangs()) << "the thread looks although all is sent";
    }
  });
}

// An application may be asked for a connection by its last call before it computes for long.
TEST(FiProviderKeeper, APeerThatHasBeenAnsweredIsConnected) {
  setenv("PACECAR_CONNECT_TIMEOUT", "1s", 1);
  with_two([](World& world) {
    const std::vector<uint8_t> byte = {1};
    int context = 0;
    if (world.first()) {
      world.end.until_taken([&] {
        return fi_tsend(world.end.endpoint, byte.data(), 1, nullptr, world.other(), 0, &context);
      });
      for (int i = 0; i < 20; ++i) {  // its greeting leaves
        world.end.progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    world.rank.barrier();
    if (!world.first()) {
      world.end.progress();  // and is answered
      std::this_thread::sleep_for(std::chrono::seconds(3));
      return expect_tagged(world, byte, 0);
    }
    const FiOutcome outcome = world.end.outcome_of(&context);
    EXPECT_EQ(outcome.error, 0);
  });
  unsetenv("PACECAR_CONNECT_TIMEOUT");
}

}  // namespace
}  // namespace pacecar::test::fi_provider_keeper_test
