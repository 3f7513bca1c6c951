#include "bench/perf/control_channel.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/json_fields.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/base/self_connection.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr Duration kSendLimit = Duration::from_s(5);
constexpr Duration kExplainLimit = Duration::from_ms(500);

// Waits for `events`; false after `limit`.
bool wait_for(int fd, short events, Duration limit) {
  pollfd entry{fd, events, 0};
  const Instant deadline = cli::steady_now() + limit;
  for (;;) {
    const Duration left = std::max(deadline - cli::steady_now(), Duration());
    const int ready = ::poll(&entry, 1, static_cast<int>((left.ns() + 999'999) / 1'000'000));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

std::string peer_of(int fd) {
  SocketAddress raw{};
  socklen_t size = sizeof raw;
  getpeername(fd, &raw.any, &size);
  const auto address = from_sockaddr(&raw.any);
  return address ? to_string(*address) : "an unknown address";
}

// 0 or an errno.
int connect_one(int fd, const addrinfo& target, Duration limit) {
  if (::connect(fd, target.ai_addr, target.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd, POLLOUT, limit)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  return is_self_connection(fd) ? ECONNREFUSED : 0;
}

bool lacks_scope(const addrinfo& target) {
  if (target.ai_family != AF_INET6) return false;
  const auto& address = *reinterpret_cast<const sockaddr_in6*>(target.ai_addr);
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) && address.sin6_scope_id == 0;
}

}  // namespace

Result<Addresses> resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const bool bracketed = host.starts_with('[') && host.ends_with(']');  // an IPv6 address, by habit
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  const int status = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) return fail(ErrorCode::kNotFound, gai_strerror(status));
  return Addresses(list, freeaddrinfo);
}

ControlChannel::ControlChannel(FileDescriptor socket, const std::string& peer)
    : socket_(std::move(socket)), peer_(peer.empty() ? peer_of(socket_.get()) : peer) {
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<ControlChannel> ControlChannel::connect(const std::string& host, uint16_t port,
                                               Duration limit, const std::string& source) {
  const auto addresses = resolve(host, port);
  if (!addresses) {
    return fail(ErrorCode::kNotFound,
                "host '{}' has no address ({}): check its spelling and the resolver", host,
                addresses.error().message);
  }
  if (lacks_scope(**addresses)) {
    return invalid("{0} is a link-local address: add the interface that leads there, as {0}%eth0",
                   ip_to_string(from_sockaddr((*addresses)->ai_addr).value()));
  }
  const auto no_source = [&] {
    return invalid("--source_ip {} is no address of this host: 'ip address' lists them", source);
  };
  const auto own = source.empty() ? Result<Addresses>(Addresses(nullptr, freeaddrinfo))
                                  : resolve(source, 0, AI_NUMERICHOST);
  if (!own) return no_source();
  std::vector<const addrinfo*> targets;
  for (const addrinfo* target = addresses->get(); target != nullptr; target = target->ai_next) {
    if (*own == nullptr || target->ai_family == (*own)->ai_family) targets.push_back(target);
  }
  if (targets.empty()) {
    return invalid("--source_ip {} and the addresses of '{}' are not of one family, IPv4 or IPv6",
                   source, host);
  }
  const Instant deadline = cli::steady_now() + limit;
  int error = 0;
  std::vector<std::string> tried;
  for (size_t i = 0; i < targets.size(); ++i) {
    const addrinfo& target = *targets[i];
    FileDescriptor fd(::socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (*own != nullptr && fd && bind(fd.get(), (*own)->ai_addr, (*own)->ai_addrlen) != 0) {
      return no_source();
    }
    const auto address = from_sockaddr(target.ai_addr);
    if (address) tried.push_back(ip_to_string(*address));
    const auto untried = static_cast<int64_t>(targets.size() - i);
    const int failed =
        fd ? connect_one(fd.get(), target, (deadline - cli::steady_now()) / untried) : errno;
    if (failed == 0) return ControlChannel(std::move(fd));
    if (error != ECONNREFUSED) error = failed;  // that host is there
  }
  const bool name = !resolve(host, port, AI_NUMERICHOST);
  const std::string there = name ? fmt::format("{} ({})", host, fmt::join(tried, ", ")) : host;
  if (error != ECONNREFUSED) {
    return fail(ErrorCode::kPeer,
                "cannot reach {} port {} ({}): check the address, the route and the firewall",
                there, port, std::strerror(error));
  }
  return fail(
      ErrorCode::kPeer,
      "nobody listens on {} port {}, or a firewall rejects it: start the server there first "
      "(the same command without a host), or name the address and, with -p, the port that "
      "it prints",
      there, port);
}

Result<void> ControlChannel::send(const Json& message) {
  const std::string line = cli::json_line(message);
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN && wait_for(socket_.get(), POLLOUT, kSendLimit)) {
      continue;
    } else if (errno != EINTR) {
      return gone();
    }
  }
  return {};
}

void ControlChannel::send_error(std::string_view text) {
  static_cast<void>(send({{"type", "error"}, {"message", text.substr(0, kMaxText)}}));
}

tl::unexpected<Error> ControlChannel::wrong_protocol() const {
  return fail(ErrorCode::kPeer,
              "{} does not speak pacecar's protocol: another program uses this port, choose a free "
              "one with -p",
              peer_);
}

tl::unexpected<Error> ControlChannel::gone() const {
  return fail(ErrorCode::kPeer, "{} went away: look at its own messages", peer_);
}

Result<bool> ControlChannel::fill(Duration limit) {
  if (!wait_for(socket_.get(), POLLIN, limit)) return false;
  std::array<char, 4096> chunk;
  const ssize_t n = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) return gone();
  input_.append(chunk.data(), static_cast<size_t>(n));
  if (input_.size() > kMaxLine) return wrong_protocol();
  return true;
}

Result<std::optional<Json>> ControlChannel::next_message() {
  const auto line = cli::take_line(input_);
  if (!line) return std::optional<Json>();
  Json message = cli::parse_json(*line);
  if (!message.is_object()) return wrong_protocol();
  if (message.value("type", Json()) == "error") {
    gave_up_ = true;
    const auto text = cli::text_field(message, "message", kMaxText);
    return fail(ErrorCode::kPeer, "{} gave up: {}", peer_, text ? *text : "it gave no reason");
  }
  return std::optional(std::move(message));
}

Result<void> ControlChannel::check_peer() {
  RETURN_IF_ERROR(fill(Duration()));
  std::string later = input_;
  RETURN_IF_ERROR(next_message());
  input_ = std::move(later);
  return {};
}

Result<Json> ControlChannel::receive(Duration limit) {
  const Instant deadline = cli::steady_now() + limit;
  for (;;) {
    ASSIGN_OR_RETURN(auto message, next_message());
    if (message) return std::move(*message);
    const Duration left = deadline - cli::steady_now();
    if (left <= Duration()) return tl::unexpected(timed_out(limit));
    RETURN_IF_ERROR(fill(left));
  }
}

Result<Json> ControlChannel::expect(std::string_view type, Duration limit) {
  ASSIGN_OR_RETURN(auto message, receive(limit));
  RETURN_IF_ERROR(require(message, type));
  return message;
}

Result<Json> ControlChannel::ask(const Json& message, std::string_view type, Duration limit) {
  RETURN_IF_ERROR(send(message));
  return expect(type, limit);
}

Result<void> ControlChannel::require(const Json& message, std::string_view type) const {
  if (message.value("type", Json()) == type) return {};
  return fail(ErrorCode::kPeer,
              "{} sent something else than '{}': run the same version of pacecar at both ends",
              peer_, type);
}

Error ControlChannel::timed_out(Duration limit) const {
  return {ErrorCode::kPeer,
          fmt::format("{} did not answer within {:.0f} s: it is busy with another client or hangs, "
                      "or another program uses this port",
                      peer_, limit.seconds())};
}

Result<std::optional<Json>> ControlChannel::poll() {
  auto message = next_message();
  if (!message || *message) return message;
  RETURN_IF_ERROR(fill(Duration()));
  return next_message();
}

Error ControlChannel::explain(Error error) {
  const Instant deadline = cli::steady_now() + kExplainLimit;
  while (!gave_up_ && cli::steady_now() < deadline) {
    auto message = receive(deadline - cli::steady_now());
    if (!message && gave_up_) return message.error();
    if (!message) break;
  }
  return error;
}

}  // namespace pacecar::perf
