#include "transport/engine/bootstrap/channel.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "transport/base/check.h"
#include "transport/base/self_connection.h"
#include "transport/io/sockaddr.h"

namespace pacecar::bootstrap {
namespace {

Socket open_socket(const SocketAddress& address) {
  return Socket(::socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Frames are small and each waits for an answer: Nagle's algorithm would only delay them.
void send_at_once(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// connect() chooses the port, so that many connections may have the same one. If the peer's address
// is of another IP version than `local`, the system chooses address and port.
bool bind_source(const Socket& socket, Address local, sa_family_t family) {
  local.port = 0;
  SocketAddress address;
  const socklen_t size = to_sockaddr(local, address);
  if (address.any.sa_family != family) return true;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  return ::bind(socket.get(), &address.any, size) == 0;
}

Socket listen_at(const Address& local, int backlog) {
  SocketAddress address;
  const socklen_t size = to_sockaddr(local, address);
  Socket socket = open_socket(address);
  if (!socket) return {};
  const int on = 1;  // Connections that a former listener has accepted do not occupy the port.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), &address.any, size) != 0 || ::listen(socket.get(), backlog) != 0) {
    return {};
  }
  return socket;
}

}  // namespace

Error socket_error(std::string_view what, int code) {
  ErrorCode kind = ErrorCode::kSystem;
  std::string_view cure = "see the system's log";
  if (code == EMFILE || code == ENFILE) {
    cure = "raise the limit of open files (ulimit -n)";
  } else if (code == EADDRNOTAVAIL) {
    kind = ErrorCode::kNotFound;
    cure =
        "check the addresses of this host's interfaces, and that the range of free ports is "
        "not used up (net.ipv4.ip_local_port_range)";
  } else if (code == EADDRINUSE) {
    kind = ErrorCode::kUnavailable;
    cure =
        "choose another port, widen the range (PACECAR_PORTS, net.ipv4.ip_local_port_range), or "
        "stop the program that uses it";
  } else if (code == EACCES || code == EPERM) {
    kind = ErrorCode::kPermission;
    cure = "allow this TCP port in the firewall and in the container's policy";
  }
  return {kind, fmt::format("{}: {}: {}", what, std::generic_category().message(code), cure)};
}

void expect_host(const FileDescriptor& socket, Duration limit) {
  const int on = limit > Duration() ? 1 : 0;
  const int pause_s = std::max(1, static_cast<int>(limit.seconds() / 10));  // between probes
  const auto limit_ms = static_cast<int>(limit.seconds() * 1000);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &pause_s, sizeof pause_s);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

Socket Socket::listen_on(const Address& local, PortRange ports, int backlog) {
  if (local.port != 0 || ports.first == 0) return listen_at(local, backlog);
  Socket socket;
  ports.find([&](uint16_t port) {
    Address at = local;
    at.port = port;
    socket = listen_at(at, backlog);
    return socket || errno != EADDRINUSE;
  });
  return socket;
}

Socket Socket::connect_to(const Address& remote, const Address& local) {
  SocketAddress address;
  const socklen_t size = to_sockaddr(remote, address);
  Socket socket = open_socket(address);
  if (!socket || !bind_source(socket, local, address.any.sa_family)) return {};
  send_at_once(socket);
  if (::connect(socket.get(), &address.any, size) != 0 && errno != EINPROGRESS) return {};
  return socket;
}

Socket Socket::accept(Address& remote) const {
  // accept4() makes a socket before it looks for a caller, and most polls find none.
  pollfd callers{get(), POLLIN, 0};
  errno = EAGAIN;
  if (::poll(&callers, 1, 0) == 0) return {};
  SocketAddress address{};
  socklen_t size = sizeof address;
  Socket socket(::accept4(get(), &address.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return {};
  send_at_once(socket);
  remote = from_sockaddr(address);
  return socket;
}

Address Socket::local() const {
  SocketAddress address{};
  socklen_t size = sizeof address;
  ::getsockname(get(), &address.any, &size);
  return from_sockaddr(address);
}

bool Socket::at_end() const {
  uint8_t byte;
  const ssize_t n = ::recv(get(), &byte, 1, MSG_PEEK);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

int Channel::connect_error() const {
  pollfd entry{socket_.get(), POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) return EINPROGRESS;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error == 0 && is_self_connection(socket_.get()) ? ECONNREFUSED : error;
}

void Channel::queue(const Frame& frame) {
  PACECAR_CHECK(sent_ == out_.size);
  out_ = frame;
  sent_ = 0;
}

ChannelStatus Channel::flush() {
  while (sent_ < out_.size) {
    const ssize_t n =
        ::send(socket_.get(), out_.bytes.data() + sent_, out_.size - sent_, MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      return errno == EAGAIN ? ChannelStatus::kPending : ChannelStatus::kClosed;
    }
  }
  return ChannelStatus::kReady;
}

ChannelStatus Channel::receive(FrameType expected) {
  for (;;) {
    const bool in_body = received_ >= kHeaderBytes;
    const size_t wanted = kHeaderBytes + (in_body ? header_.body_size : 0);
    if (in_body && received_ == wanted) {
      received_ = 0;
      return ChannelStatus::kReady;
    }
    const ssize_t n = ::recv(socket_.get(), in_.data() + received_, wanted - received_, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return ChannelStatus::kPending;
    if (n == 0) errno = 0;
    if (n <= 0) return ChannelStatus::kClosed;
    received_ += static_cast<size_t>(n);
    if (received_ != kHeaderBytes) continue;
    header_ = parse_header(std::span(in_).first<kHeaderBytes>(), expected);
    if (header_.verdict == HeaderVerdict::kForeign) return ChannelStatus::kForeign;
    if (header_.verdict == HeaderVerdict::kOtherVersion) return ChannelStatus::kOtherVersion;
  }
}

}  // namespace pacecar::bootstrap
