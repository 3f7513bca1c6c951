// TCP sockets for tests over the loopback interface, and a relay that can change a byte. No call
// blocks except TcpEnd's constructor (loopback connects at once). One thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/file_descriptor.h"

namespace pacecar::test {

// `host` is an IPv4 address of this host.
inline sockaddr_in local(uint16_t port, const char* host = "127.0.0.1") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  EXPECT_EQ(::inet_pton(AF_INET, host, &address.sin_addr), 1);
  address.sin_port = htons(port);
  return address;
}

// Drops all that arrives at the sockets of this process that are connected to `port`.
inline void cut_off(uint16_t port) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || peer.sin_port != htons(port)) continue;
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
}

// One end of a TCP connection, or none.
class TcpEnd {
 public:
  TcpEnd() = default;
  explicit TcpEnd(uint16_t port, const char* host = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in address = local(port, host);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  explicit TcpEnd(FileDescriptor accepted) : fd_(std::move(accepted)) {}
  explicit operator bool() const { return static_cast<bool>(fd_); }

  void close() { const FileDescriptor closed = std::move(fd_); }
  // Closes with a reset instead of an orderly end.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void send(std::span<const uint8_t> bytes) {
    ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // the other end may be gone
  }
  // Whether the other end's kernel has received everything.
  bool delivered() const {
    int waiting = 1;
    return ::ioctl(fd_.get(), SIOCOUTQ, &waiting) == 0 && waiting == 0;
  }
  // The bytes that have arrived; nullopt when the other end has closed and all has been read.
  std::optional<std::vector<uint8_t>> receive() {
    std::vector<uint8_t> bytes(4096);
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return std::nullopt;
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return bytes;
  }

 private:
  FileDescriptor fd_;
};

// A port of the loopback interface that is bound, but at which nobody listens.
class TcpNobody {
 public:
  TcpNobody() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    socklen_t size = sizeof address_;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }

  uint16_t port() const { return ntohs(address_.sin_port); }
  const sockaddr_in& address() const { return address_; }

 private:
  FileDescriptor fd_;
  sockaddr_in address_ = local(0);
};

// Listens on a port of the loopback interface; 0 takes a free one.
class TcpServer {
 public:
  explicit TcpServer(uint16_t port = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = local(port);
    socklen_t size = sizeof address;
    const int on = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }

  uint16_t port() const { return port_; }
  TcpEnd accept() { return TcpEnd(FileDescriptor(::accept(fd_.get(), nullptr, nullptr))); }

 private:
  FileDescriptor fd_;
  uint16_t port_ = 0;
};

// Relays one connection: forwards both ways, and inverts a bit of the byte at an offset of one
// way's stream.
class TcpRelay {
 public:
  enum class Way { kToServer, kToClient };
  static constexpr size_t kNever = SIZE_MAX;

  TcpRelay(uint16_t target, Way way, size_t flip_at, uint16_t port = 0)
      : server_(port), target_(target), way_(way), at_(flip_at) {}

  uint16_t port() const { return server_.port(); }
  void step() {
    if (!joined_) {
      client_ = server_.accept();
      if (!client_) return;
      upstream_ = TcpEnd(target_);
      joined_ = true;
    }
    forward(client_, upstream_, Way::kToServer);
    forward(upstream_, client_, Way::kToClient);
  }
  bool flipped() const { return flipped_; }

 private:
  void forward(TcpEnd& from, TcpEnd& to, Way way) {
    auto bytes = from.receive();
    if (!bytes) return to.close();
    if (way == way_) {
      if (at_ >= passed_ && at_ - passed_ < bytes->size()) {
        (*bytes)[at_ - passed_] ^= 1;
        flipped_ = true;
      }
      passed_ += bytes->size();
    }
    if (!bytes->empty()) to.send(*bytes);
  }

  TcpServer server_;
  uint16_t target_;
  Way way_;
  size_t at_;
  size_t passed_ = 0;
  bool flipped_ = false;
  bool joined_ = false;
  TcpEnd client_;
  TcpEnd upstream_;
};

}  // namespace pacecar::test
