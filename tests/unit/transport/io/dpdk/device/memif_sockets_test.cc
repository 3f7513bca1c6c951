// net_memif's control sockets: clients whose server does not answer, and servers that start again.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/dpdk_hub.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::memif_sockets_test {
namespace {

using test::open_end;
using test::rested_now;

std::unique_ptr<PacketIo> open_memif(const std::string& name, const std::string& arguments) {
  return open_end(parse_dpdk_device(name, arguments).value());
}

// Accepts no client until send_away().
class SilentServer {
 public:
  explicit SilentServer(const std::string& path)
      : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const bool listens =
        bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        listen(listener_, 8) == 0;
    if (!listens) throw std::runtime_error("no listener at " + path);
  }
  ~SilentServer() { close(listener_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  struct Clients {
    int gone = 0;
    int waiting = 0;
    bool operator==(const Clients&) const = default;
  };
  // Closes the connections of all clients since the last call, and counts them.
  Clients send_away() {
    Clients clients;
    for (int fd = -1; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) {
      char byte = 0;
      ++(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 ? clients.gone : clients.waiting);
    }
    return clients;
  }

 private:
  int listener_;
};

TEST(MemifSockets, ClientWaitsForASilentServerAndComesBackWhenSentAway) {
  const test::ScratchDirectory folder;
  const std::string path = (folder.path() / "silent").string();
  SilentServer server(path);
  const auto client = open_memif("net_memif0", "role=client,socket-abstract=no,socket=" + path);
  auto poll_for_a_second = [&, now = rested_now()]() mutable {
    std::array<RxPacket, 4> none;
    for (int i = 0; i < 100; ++i) client->receive(none, now = now + Duration::from_ms(10));
  };
  const SilentServer::Clients one{.waiting = 1};
  poll_for_a_second();
  EXPECT_EQ(server.send_away(), one);
  // The client comes again. Its driver may not know yet that the server has closed the connection.
  SilentServer::Clients seen;
  for (int i = 0; i < 100 && seen == SilentServer::Clients(); ++i) {
    rested_now();
    poll_for_a_second();
    seen = server.send_away();
  }
  EXPECT_EQ(seen, one);
}

void serve_again_and_again(const std::string& socket) {
  for (int round = 0; round < 3; ++round) open_memif("net_memif0", "role=server," + socket);
}

TEST(MemifSockets, ServerReplacesOnlyTheSocketOfADeadServer) {
  const test::ScratchDirectory folder;
  const std::string path = (folder.path() / "file").string();
  const std::string arguments = "role=server,socket-abstract=no,socket=" + path;
  { const SilentServer dead(path); }
  const auto server = open_memif("net_memif0", arguments);
  EXPECT_TRUE(std::filesystem::is_socket(path));
  std::ofstream(path + "2") << "no socket";
  // The driver keeps the name of a device that it refuses: each attempt needs another name.
  EXPECT_THROW(open_memif("net_memif91", arguments + "2"), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_regular_file(path + "2"));
  const SilentServer alive(path + "3");
  EXPECT_THROW(open_memif("net_memif92", arguments + "3"), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_socket(path + "3"));
}

// A client that may connect can end the server, so only the server's user may connect.
TEST(MemifSockets, SocketFileIsTheUsersAloneAndIsRemovedWithTheServer) {
  const test::ScratchDirectory folder;
  const std::string path = (folder.path() / "file").string();
  {
    const auto server = open_memif("net_memif0", "role=server,socket-abstract=no,socket=" + path);
    const auto rights = std::filesystem::status(path).permissions();
    EXPECT_EQ(rights, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(MemifSockets, ServerFreesItsNames) {
  const test::ScratchDirectory folder;
  serve_again_and_again("socket-abstract=no,socket=" + (folder.path() / "file").string());
  serve_again_and_again("socket=" + (folder.path() / "abstract").string());
}

// The driver unmaps the rings on another thread than the one that fills them.
TEST(MemifSockets, ServerThatSendsOutlivesItsClients) {
  constexpr int kClients = 20;
  constexpr size_t kBurst = 64;
  const test::ScratchDirectory folder;
  const std::string socket = "socket-abstract=no,socket=" + (folder.path() / "file").string();
  const auto server = open_memif("net_memif0", "address=192.0.2.1,role=server," + socket);
  Address to = server->local_address();
  to.ip.back() = 2;
  const std::vector<uint8_t> payload(server->caps().datagram_bytes);
  const std::vector<TxPacket> burst(kBurst, TxPacket{.payload = payload, .destination = &to});
  const std::jthread sender([&](const std::stop_token& over) {
    std::array<RxPacket, kBurst> none;
    while (!over.stop_requested()) {
      server->send(burst, rested_now());
      server->receive(none, rested_now());
    }
  });
  std::array<RxPacket, kBurst> received;
  for (int i = 0; i < kClients; ++i) {
    const auto client = open_memif("net_memif1", "address=192.0.2.2,role=client," + socket);
    for (size_t count = 0; count < 5 * kBurst;) count += client->receive(received, rested_now());
  }
}

}  // namespace
}  // namespace pacecar::memif_sockets_test
