#include "net_plugin/libfabric/link/endpoint_bootstrap.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "transport/base/invalid.h"
#include "transport/base/self_connection.h"
#include "transport/engine/bootstrap/channel.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

// The listeners' numbers in epoll; calls begin at 1.
constexpr uint64_t kListener = 0;
constexpr uint64_t kListenerWithinHost = ~uint64_t{0};
// Calls of epoll_wait in one poll, so that it handles, say, the greeting of a call just accepted.
constexpr int kRounds = 4;
// After this silence, the host of a peer that has greeted is gone. Outages are shorter.
constexpr Duration kGone = Duration::from_s(600);

// An abstract address: valid in this network namespace, without a file.
struct UnixAddress {
  explicit UnixAddress(const Address& name) {
    const std::string text = "pacecar-fi-" + to_string(name);
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t bytes = 0;
};

// The process at the other end of a Unix socket. nullopt: it belongs to another user.
std::optional<pid_t> process_behind(int fd) {
  ucred other{};
  socklen_t bytes = sizeof other;
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0;
  return known && other.uid == geteuid() ? std::optional(other.pid) : std::nullopt;
}

tl::unexpected<Error> system_error(const char* what, const Address& name) {
  return fail(ErrorCode::kSystem, "{} {}: {}", what, to_string(name), std::strerror(errno));
}

bootstrap::Socket unix_socket() {
  return bootstrap::Socket(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

void Greeting::set_name(const Address& of) {
  SocketAddress raw;
  name_size = to_sockaddr(without_scope(of), raw);
  std::memcpy(name.data(), &raw, name_size);
}

std::optional<Address> Greeting::sender() const {
  SocketAddress raw{};
  static_assert(sizeof raw == sizeof name);
  std::memcpy(&raw, name.data(), sizeof raw);
  const socklen_t expected = raw.any.sa_family == AF_INET6 ? sizeof raw.v6 : sizeof raw.v4;
  return magic == kMagic && name_size == expected ? from_sockaddr(&raw.any) : std::nullopt;
}

Result<std::unique_ptr<EndpointBootstrap>> EndpointBootstrap::open(const Address& address,
                                                                   PortRange ports,
                                                                   Duration patience) {
  bootstrap::Socket listener = bootstrap::Socket::listen_on(address, ports, SOMAXCONN);
  if (!listener) return system_error("cannot listen at", address);
  const Address bound = listener.local();
  FileDescriptor events(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (events.get() < 0 || epoll_ctl(events.get(), EPOLL_CTL_ADD, listener.get(), &event) != 0) {
    return system_error("cannot wait for callers at", address);
  }
  return std::unique_ptr<EndpointBootstrap>(
      new EndpointBootstrap(std::move(events), std::move(listener), bound, patience));
}

void EndpointBootstrap::enable_within_host(const Address& own) {
  calls_within_host_ = true;
  const UnixAddress address(own);
  bootstrap::Socket listener = unix_socket();
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerWithinHost}};
  const bool listens = listener.get() >= 0 &&
                       bind(listener.get(), address.get(), address.bytes) == 0 &&
                       listen(listener.get(), SOMAXCONN) == 0 &&
                       epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event) == 0;
  if (listens) listener_within_host_ = std::move(listener);  // else peers call by TCP
}

EndpointBootstrap::CallId EndpointBootstrap::add(Call call, uint32_t wanted) {
  const CallId id = next_++;
  epoll_event event{.events = wanted, .data = {.u64 = id}};
  call.begun = attended_.total();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, call.socket.get(), &event) != 0) {
    events_.push_back({.kind = Event::Kind::kFailed, .call = id, .error = errno});
    if (!call.ours) --unknown_;
    return id;
  }
  calls_.emplace(id, std::move(call));
  return id;
}

EndpointBootstrap::CallId EndpointBootstrap::call(const Address& peer, const Address& from,
                                                  const Greeting& ours) {
  if (calls_within_host_) {  // by TCP if the peer does not listen there
    const UnixAddress address(peer);
    FileDescriptor socket = unix_socket();
    const bool open = socket && connect(socket.get(), address.get(), address.bytes) == 0;
    if (const auto process = open ? process_behind(socket.get()) : std::nullopt) {
      return add({.socket = std::move(socket),
                  .ours = true,
                  .within_host = true,
                  .process = *process,
                  .from = peer,
                  .outgoing = ours},
                 EPOLLOUT);
    }
  }
  // From our own address: the peer compares it with the name in the greeting.
  Call call{.socket = bootstrap::Socket::connect_to(peer, from),
            .ours = true,
            .from = peer,
            .outgoing = ours};
  if (!call.socket) {
    events_.push_back({.kind = Event::Kind::kFailed, .call = next_, .error = errno});
    return next_++;
  }
  bootstrap::expect_host(call.socket, patience_);
  return add(std::move(call), EPOLLOUT);
}

void EndpointBootstrap::answer(CallId id, const Greeting& given) {
  const auto call = calls_.find(id);
  if (call == calls_.end()) return;
  call->second.outgoing = given;
  if (!greet(call->second)) drop(call, ECONNRESET);
}

void EndpointBootstrap::accept(const bootstrap::Socket& listener) {
  Address caller;
  while (unknown_ < kMaxUnknown) {  // the others wait in the kernel's backlog
    bootstrap::Socket socket = listener.accept(caller);
    if (!socket) {
      if (errno != EAGAIN && accept_error_ == 0) accept_error_ = errno;
      return;
    }
    const bool within_host = &listener == &listener_within_host_;
    const auto process = within_host ? process_behind(socket.get()) : pid_t{0};
    if (!process) continue;
    ++unknown_;
    add({.socket = std::move(socket),
         .connected = true,
         .within_host = within_host,
         .process = *process,
         .from = within_host ? address_ : caller},
        EPOLLIN | EPOLLRDHUP);
  }
}

bool EndpointBootstrap::is_within_host(CallId id) const {
  const auto call = calls_.find(id);
  return call != calls_.end() && call->second.within_host;
}

bool EndpointBootstrap::has_greeted(CallId id) const {
  const auto call = calls_.find(id);
  return call != calls_.end() && call->second.greeted;
}

void EndpointBootstrap::hand_over(CallId id, std::shared_ptr<const FileDescriptor> memory) {
  calls_.at(id).outgoing_memory = std::move(memory);
}

// Sends our greeting, for which the socket has room. False: the peer has reset the socket.
bool EndpointBootstrap::greet(Call& call) {
  Greeting greeting = call.outgoing;
  if (!call.within_host) greeting.token_address = 0;
  iovec bytes{&greeting, sizeof greeting};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (call.outgoing_memory != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = call.outgoing_memory->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  const ssize_t sent = sendmsg(call.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  call.outgoing_memory.reset();
  return sent == sizeof greeting;
}

// As recv. A descriptor that comes with the bytes replaces `memory`.
ssize_t EndpointBootstrap::receive_some(const Call& call, std::span<char> place,
                                        FileDescriptor& memory) {
  iovec bytes{place.data(), place.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  // Room for one descriptor: the kernel closes others.
  alignas(cmsghdr) std::array<char, CMSG_LEN(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(call.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = received >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    memory = FileDescriptor(fd);
  } else if (received >= 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    return 0;  // this process has no descriptor left for it: the call ends
  }
  return received;
}

// False: the socket is closed or broken.
bool EndpointBootstrap::receive(Call& call) {
  while (true) {
    if (call.received == sizeof(Greeting)) {  // nothing may follow a greeting
      char more = 0;
      return recv(call.socket.get(), &more, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    }
    const ssize_t bytes =
        receive_some(call, std::span(call.incoming).subspan(call.received), call.incoming_memory);
    if (bytes < 0) return errno == EAGAIN;
    if (bytes == 0) return false;
    call.received += static_cast<size_t>(bytes);
  }
}

// Ends a call, and adds its event; a caller that has sent no greeting ends without an event.
EndpointBootstrap::Calls::iterator EndpointBootstrap::drop(Calls::iterator at, int error) {
  const auto& [id, call] = *at;
  if (call.greeted) {
    events_.push_back({.kind = Event::Kind::kLost, .call = id});
  } else if (call.ours) {
    events_.push_back({.kind = Event::Kind::kFailed, .call = id, .error = error});
  } else {
    --unknown_;
  }
  return calls_.erase(at);
}

void EndpointBootstrap::poll_call(CallId id) {
  const auto at = calls_.find(id);
  if (at == calls_.end()) return;
  Call& call = at->second;
  if (!call.connected) {
    int error = 0;
    socklen_t bytes = sizeof error;
    (void)getsockopt(call.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0 && !call.within_host && is_self_connection(call.socket.get())) {
      error = ECONNREFUSED;
    }
    if (error == 0 && !greet(call)) error = ECONNRESET;
    if (error != 0) {
      drop(at, error);
      return;
    }
    call.connected = true;
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = id}};
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, call.socket.get(), &event);
  }
  const bool alive = receive(call);
  if (!call.greeted && call.received == sizeof(Greeting)) {
    Event event{.kind = call.ours ? Event::Kind::kAnswered : Event::Kind::kCalled, .call = id};
    std::memcpy(&event.greeting, call.incoming.data(), sizeof(Greeting));
    const auto name = event.greeting.sender();
    if (!name || !(call.ours || call.within_host || same_ip(*name, call.from))) {
      drop(at, EPROTO);
      return;
    }
    if (!call.ours) --unknown_;
    call.greeted = true;
    bootstrap::expect_host(call.socket, kGone);
    event.name = *name;
    event.process = call.process;
    event.memory = std::move(call.incoming_memory);
    events_.push_back(std::move(event));
  }
  if (!alive) drop(at, ECONNRESET);
}

std::vector<EndpointBootstrap::Event> EndpointBootstrap::poll() {
  epoll_event ready[16];
  for (int round = 0; round < kRounds; ++round) {
    const int count = epoll_wait(epoll_.get(), ready, std::size(ready), 0);
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.u64 == kListener) {
        accept(listener_);
      } else if (ready[i].data.u64 == kListenerWithinHost) {
        accept(listener_within_host_);
      } else {
        poll_call(ready[i].data.u64);
      }
    }
  }
  attended_.advance(clock_now());
  for (auto at = calls_.begin(); at != calls_.end();) {
    const Call& call = at->second;
    // A peer whose kernel has taken our call may compute for long before it makes progress.
    const bool waits = call.greeted || (call.ours && call.connected);
    const bool silent = !waits && attended_.total() - call.begun >= patience_;
    at = silent ? drop(at, ETIMEDOUT) : std::next(at);
  }
  return std::exchange(events_, {});
}

}  // namespace pacecar::fabric
