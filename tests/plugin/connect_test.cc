// Connections: order, number, strangers, abandoned attempts.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "tests/plugin/plugin_test.h"
#include "tests/support/tcp.h"

namespace pacecar::test::connect_test {
namespace {

using nccl::NcclResult;

// Sends one message over the connection and checks it on arrival.
void expect_works(const FakeNcclHost& host, const Ends& pair, uint64_t seed) {
  const Buffer source(host, pair.send, 10'000);
  const Buffer target(host, pair.receive, 10'000);
  fill_pattern(source.bytes(), seed);
  void* const receiving = host.receive(pair.receive, target.whole());
  void* const sending = host.send(pair.send, source.whole());
  EXPECT_EQ(host.finish(receiving, sending), 10'000);
  EXPECT_FALSE(find_mismatch(target.bytes(), seed));
}

// What the descriptors of this process refer to.
std::multiset<std::string> open_descriptors() {
  std::multiset<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    open.insert(std::filesystem::read_symlink(entry, closed_meanwhile));
  }
  return open;
}

// The TCP ports on which this process listens.
std::set<uint16_t> listening_ports() {
  const std::multiset<std::string> own_sockets = open_descriptors();
  std::set<uint16_t> ports;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmissions, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmissions >> uid >>
          timeout >> inode;
      if (state != "0A" || !own_sockets.contains("socket:[" + inode + "]")) continue;
      ports.insert(
          static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

TcpEnd stranger(uint16_t port, std::string_view data) {
  TcpEnd end(port, nic_address().c_str());
  end.send({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
  return end;
}

TEST(Connect, TheListenerMayCloseAsSoonAsAcceptSucceeded) {
  expect_processes_pass(2, [](Rank& rank) {
    const auto host = start_host();
    if (rank.rank() == 0) {
      const Listening listening = host->listen();
      rank.give(1, listening.handle);
      void* const comm = host->accept(listening.comm);
      host->close_listen(listening.comm);
      Buffer target(*host, comm, 4096);
      EXPECT_EQ(host->finish(host->receive(comm, target.whole(3))), 4096);
      EXPECT_FALSE(find_mismatch(target.bytes(), 5));
      target.deregister();
      rank.barrier();
      host->net().closeRecv(comm);
    } else {
      void* const comm = host->connect(rank.take(0));
      Buffer source(*host, comm, 4096);
      fill_pattern(source.bytes(), 5);
      EXPECT_EQ(host->finish(host->send(comm, source.whole(3))), 4096);
      source.deregister();
      rank.barrier();
      host->net().closeSend(comm);
    }
  });
}

TEST(Connect, ConnectBeforeAcceptDoesNotBlock) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    Listening listening = host->listen();
    Ends pair;
    // A connect that blocked here would wait for ever: this thread also accepts.
    for (int i = 0; i < 1000 && pair.send == nullptr; ++i)
      pair.send = host->try_connect(listening.handle);
    poll_until("both ends",
               [&] { return host->try_both(listening.handle, listening.comm, &pair); });
    host->close_listen(listening.comm);
    expect_works(*host, pair, 1);
    host->close(pair);
  });
}

TEST(Connect, ManyConnectsAtOnceReachTheirOwnListeners) {
  expect_processes_pass(1, [](Rank&) {
    constexpr size_t kCount = 64;
    const auto host = start_host();
    std::vector<Listening> listening;
    for (size_t i = 0; i < kCount; ++i) listening.push_back(host->listen());
    std::vector<Ends> pairs(kCount);
    poll_until("all connections", [&] {
      size_t ready = 0;
      for (size_t i = 0; i < kCount; ++i) {
        ready += host->try_both(listening[i].handle, listening[i].comm, &pairs[i]);
      }
      return ready == kCount;
    });
    for (size_t i = 0; i < kCount; ++i) {
      host->close_listen(listening[i].comm);
      expect_works(*host, pairs[i], i);
    }
    for (const Ends& pair : pairs) host->close(pair);
  });
}

TEST(Connect, StrangersDoNotBlockTheListener) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    Listening listening = host->listen();
    std::vector<TcpEnd> strangers;
    for (const uint16_t port : listening_ports()) {
      strangers.push_back(stranger(port, ""));  // silent, stays connected
      strangers.push_back(stranger(port, "GET / HTTP/1.1\r\n\r\n"));
      strangers.push_back(stranger(port, std::string(100'000, '\xff')));
      stranger(port, "half a hello").close();
    }
    EXPECT_FALSE(strangers.empty());
    Ends pair;
    poll_until("the good peer",
               [&] { return host->try_both(listening.handle, listening.comm, &pair); });
    // Only the good peer was accepted.
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(host->try_accept(listening.comm), nullptr);
    host->close_listen(listening.comm);
    expect_works(*host, pair, 2);
    host->close(pair);
  });
}

TEST(Connect, AnAbandonedConnectDoesNotAffectTheNextWithTheSameHandleBuffer) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    const Listening abandoned = host->listen();
    Listening listening = host->listen();
    HandleBytes copy = abandoned.handle;
    void* const too_early = host->try_connect(copy);
    if (too_early != nullptr) host->net().closeSend(too_early);
    copy = listening.handle;
    Ends pair;
    poll_until("the second attempt", [&] { return host->try_both(copy, listening.comm, &pair); });
    host->close_listen(listening.comm);
    host->close_listen(abandoned.comm);
    expect_works(*host, pair, 3);
    host->close(pair);
  });
}

TEST(Connect, ConnectFailsWhenTheListenerIsClosed) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_CONNECT_TIMEOUT", "1s", 1);
    const auto host = start_host();
    Listening listening = host->listen();
    host->close_listen(listening.comm);
    void* comm = nullptr;
    NcclResult result = NcclResult::kSuccess;
    poll_until("the refusal", [&] {
      result = host->net().connect(host->context(), 0, listening.handle.data(), &comm, nullptr);
      return result != NcclResult::kSuccess || comm != nullptr;
    });
    EXPECT_EQ(result, NcclResult::kRemoteError);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Connect, ConnectsThatAreNotCalledAgainHoldNothing) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_CONNECT_TIMEOUT", "100ms", 1);
    const auto host = start_host();
    const Listening listening = host->listen();
    std::array<HandleBytes, 2> copies{listening.handle, listening.handle};
    std::array<size_t, copies.size()> descriptors{};
    for (size_t i = 0; i < copies.size(); ++i) {
      void* const comm = host->try_connect(copies[i]);
      if (comm != nullptr) host->net().closeSend(comm);
      descriptors[i] = open_descriptors().size();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    EXPECT_EQ(descriptors[1], descriptors[0]) << "the second attempt only";
    host->close_listen(listening.comm);
  });
}

TEST(Connect, AnInvalidHandleIsRefused) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    HandleBytes handle;
    handle.fill(0x5a);
    void* comm = &handle;
    EXPECT_NE(host->net().connect(host->context(), 0, handle.data(), &comm, nullptr),
              NcclResult::kSuccess);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Connect, AForkedChildLeavesItsParentsConnectionsAloneAndMakesItsOwn) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    const Ends pair = host->connect_self();
    const Buffer target(*host, pair.receive, 10'000);
    void* const receiving = host->receive(pair.receive, target.whole());
    const pid_t child = fork();
    if (child == 0) {
      int done = 0;
      int size = 0;
      EXPECT_NE(host->net().test(receiving, &done, &size), NcclResult::kSuccess);
      EXPECT_EQ(done, 0);
      host->close(pair);
      if (nic_names().find("dpdk") == std::string::npos) {  // which starts once
        const auto own = start_host();
        const Ends own_pair = own->connect_self();
        expect_works(*own, own_pair, 4);
        own->close(own_pair);
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    const Buffer source(*host, pair.send, 10'000);
    fill_pattern(source.bytes(), 5);
    void* const sending = host->send(pair.send, source.whole());
    EXPECT_EQ(host->finish(receiving, sending), 10'000);
    EXPECT_FALSE(find_mismatch(target.bytes(), 5));
  });
}

TEST(Connect, TheLogSaysWhichOffloadsOfAnRdmaDeviceAreUsed) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    const bool rdma_device = nic_names().find(':') == std::string::npos;
    EXPECT_EQ(was_logged(nccl::LogSeverity::kInfo, ": offloads: "), rdma_device);
  });
}

TEST(Connect, ClosedConnectionsDoNotCountTowardsTheLimit) {
  expect_processes_pass(1, [](Rank&) {
    constexpr size_t kMost = 4;
    setenv("PACECAR_MAX_CONNECTIONS", std::to_string(kMost).c_str(), 1);
    const auto host = start_host();
    for (uint64_t round = 0; round < 50; ++round) {
      std::vector<Ends> pairs;
      for (size_t i = 0; i < kMost; ++i) pairs.push_back(host->connect_self());
      expect_works(*host, pairs.back(), round);
      for (const Ends& pair : pairs) host->close(pair);
    }
    // None of the open connections is closing, so connect fails at once.
    std::vector<Ends> pairs;
    for (size_t i = 0; i < kMost; ++i) pairs.push_back(host->connect_self());
    Listening listening = host->listen();
    void* comm = nullptr;
    nccl::DeviceHandle* device = nullptr;
    EXPECT_EQ(host->net().connect(host->context(), 0, listening.handle.data(), &comm, &device),
              NcclResult::kSystemError);
    host->close_listen(listening.comm);
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, "raise PACECAR_MAX_CONNECTIONS"));
    for (const Ends& pair : pairs) host->close(pair);
  });
}

}  // namespace
}  // namespace pacecar::test::connect_test
