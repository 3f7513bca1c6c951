#include "tests/interop/channel.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/engine/clock.h"

namespace pacecar::test {
namespace {

constexpr int kConnectTries = 200;
constexpr int kRetryMs = 100;
constexpr Duration kSilence = Duration::from_s(60);

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(ErrorCode::kSystem, what + " (" + std::strerror(errno) + "): check host and port");
}

}  // namespace

Result<Channel> Channel::listen(uint16_t port) {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    close(listener);
    return system_error("cannot listen on TCP port " + std::to_string(port));
  }
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  close(listener);
  if (fd < 0) return system_error("no connection on TCP port " + std::to_string(port));
  return Channel(fd);
}

Result<Channel> Channel::connect(const std::string& host, uint16_t port) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return system_error("cannot find the host " + host);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (int i = 0; i < kConnectTries; ++i) {
    const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, list->ai_addr, list->ai_addrlen) == 0) return Channel(fd);
    close(fd);
    poll(nullptr, 0, kRetryMs);
  }
  return system_error("cannot connect to " + host);
}

Channel::Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

Result<void> Channel::exchange(std::span<const uint8_t> mine, std::span<uint8_t> theirs,
                               const std::function<void()>& idle) {
  const Instant limit = clock_now() + kSilence;
  while (!mine.empty() || !theirs.empty()) {
    if (!mine.empty()) {
      const ssize_t sent = send(fd_, mine.data(), mine.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) mine = mine.subspan(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return system_error("the other side is gone");
    }
    if (!theirs.empty()) {
      const ssize_t got = recv(fd_, theirs.data(), theirs.size(), MSG_DONTWAIT);
      if (got > 0) theirs = theirs.subspan(static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN)) return system_error("the other side is gone");
    }
    if (clock_now() > limit) return fail(ErrorCode::kPeer, "the other side is silent: see its log");
    idle();
  }
  return {};
}

}  // namespace pacecar::test
