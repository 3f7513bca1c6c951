#include "bench/perf/control_listener.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/cli/clock.h"
#include "bench/cli/json_fields.h"
#include "transport/base/invalid.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/io/sockaddr.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr int kBacklog = 64;
constexpr const char* kAnywhere = "*";
constexpr uint32_t kPortsTried = 64;

using bootstrap::ClusterKey;
using bootstrap::Mac;
using bootstrap::Nonce;

constexpr std::string_view kPurpose = "pacecar control channel";
constexpr std::string_view kKeyCure =
    "let PACECAR_KEY_FILE name the same key on both hosts or on neither";
constexpr std::string_view kNonsense = "sends no usable proof of the cluster key";

// Both ends print it.
tl::unexpected<Error> refuse(const ControlChannel& channel, std::string_view why) {
  return fail(ErrorCode::kPeer, "the client {} {}: {}", channel.peer(), why, kKeyCure);
}

}  // namespace

Mac ControlProof::mac(const ClusterKey& key, std::string_view side) const {
  std::array<uint8_t, 2 * sizeof(Nonce)> salt;
  std::ranges::copy(client, salt.begin());
  std::ranges::copy(server, salt.begin() + sizeof(Nonce));
  return bootstrap::mac_of(bootstrap::derive_key(key, salt, kPurpose),
                           {reinterpret_cast<const uint8_t*>(side.data()), side.size()});
}

Result<void> prove(ControlChannel& channel, const ClusterKey& key, Duration limit) {
  if (!key) return {};
  const Instant deadline = cli::steady_now() + limit;
  ControlProof proof{.client = random_value<Nonce>()};
  ASSIGN_OR_RETURN(
      const auto challenge,
      channel.ask({{"type", "prove"}, {"nonce", cli::to_hex(proof.client)}}, "challenge", limit));
  RETURN_IF_ERROR(cli::bytes_field(challenge, "nonce", proof.server));
  ASSIGN_OR_RETURN(const auto answer,
                   channel.ask({{"type", "proof"}, {"mac", cli::to_hex(proof.mac(key, "client"))}},
                               "proof", std::max(deadline - cli::steady_now(), Duration())));
  Mac mac;
  RETURN_IF_ERROR(cli::bytes_field(answer, "mac", mac));
  if (bootstrap::same_mac(mac, proof.mac(key, "server"))) return {};
  return fail(ErrorCode::kPeer, "the server {} has another cluster key than the client: {}",
              channel.peer(), kKeyCure);
}

Result<bool> CallerProof::take(ControlChannel& channel, const ClusterKey& key,
                               const Json& message) {
  if (stage_ == Stage::kProved) return false;
  if (stage_ == Stage::kNothing) {
    const bool proves = message.value("type", Json()) == "prove";
    if (!proves && !key) return false;
    if (!proves) return refuse(channel, "does not show the cluster key that the server asks for");
    if (!key) return refuse(channel, "has a cluster key, and the server has none");
    if (!cli::bytes_field(message, "nonce", proof_.client)) return refuse(channel, kNonsense);
    proof_.server = random_value<Nonce>();
    RETURN_IF_ERROR(channel.send({{"type", "challenge"}, {"nonce", cli::to_hex(proof_.server)}}));
    stage_ = Stage::kChallenged;
    return true;
  }
  RETURN_IF_ERROR(channel.require(message, "proof"));
  Mac mac;
  if (!cli::bytes_field(message, "mac", mac)) return refuse(channel, kNonsense);
  if (!bootstrap::same_mac(mac, proof_.mac(key, "client"))) {
    return refuse(channel, "has another cluster key than the server");
  }
  RETURN_IF_ERROR(
      channel.send({{"type", "proof"}, {"mac", cli::to_hex(proof_.mac(key, "server"))}}));
  stage_ = Stage::kProved;
  return true;
}

Result<ControlListener> ControlListener::open(const std::vector<std::string>& hosts, uint16_t port,
                                              const bootstrap::ClusterKey& key, PortRange ports) {
  for (uint32_t tries = 0;; ++tries) {
    const auto ranged = static_cast<uint16_t>(ports.first + tries);
    const bool in_range = port == 0 && ports.first > 0;
    ControlListener listener;
    listener.port_ = in_range ? ranged : port;
    listener.key_ = key;
    Result<void> listens;
    for (const std::string& host : hosts) {
      if (listens) listens = listener.listen_at(host);
    }
    if (listens) return listener;
    // A port that is free at the first address may be taken at another.
    const bool another = in_range ? ranged < ports.last
                                  : port == 0 && !listener.sockets_.empty() && tries < kPortsTried;
    if (!another) return tl::unexpected(listens.error());
  }
}

Result<void> ControlListener::listen_at(const std::string& host) {
  const bool anywhere = host == kAnywhere;
  // One IPv6 socket serves IPv4 too.
  const auto addresses = resolve(anywhere ? "::" : host, port_, AI_PASSIVE);
  if (!addresses) {
    return fail(ErrorCode::kNotFound, "'{}' is no address ({}): name one of this host", host,
                addresses.error().message);
  }
  const addrinfo* const list = addresses->get();
  FileDescriptor fd(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // As of a kernel that was started with ipv6.disable=1.
  if (!fd && anywhere && errno == EAFNOSUPPORT) return listen_at("0.0.0.0");
  const int on = 1;
  const int only_v6 = anywhere ? 0 : 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  if (!fd || ::bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    const char* cure =
        errno == EADDRNOTAVAIL ? "name an address of this host" : "choose another one with -p";
    return fail(ErrorCode::kSystem, "cannot listen at {} on TCP port {} ({}): {}", host, port_,
                std::strerror(errno), cure);
  }
  SocketAddress address{};
  socklen_t size = sizeof address;
  getsockname(fd.get(), &address.any, &size);
  port_ = from_sockaddr(address).port;
  sockets_.push_back(std::move(fd));
  return {};
}

Result<Caller> ControlListener::accept(std::string_view greeting, const OnRefused& on_refused) {
  for (;;) {
    if (auto caller = take_greeted(greeting, on_refused)) return std::move(*caller);
    wait();
    RETURN_IF_ERROR(take_connections(on_refused));
  }
}

// Waits for a client, a message or a deadline.
void ControlListener::wait() const {
  std::vector<pollfd> entries;
  for (const FileDescriptor& socket : sockets_) entries.push_back({socket.get(), POLLIN, 0});
  for (const Waiting& one : waiting_) entries.push_back({one.channel.descriptor(), POLLIN, 0});
  int limit_ms = -1;
  if (!waiting_.empty()) {
    const Duration left = std::max(waiting_.front().deadline - cli::steady_now(), Duration());
    limit_ms = static_cast<int>(left.ns() / 1'000'000) + 1;
  }
  ::poll(entries.data(), entries.size(), limit_ms);
}

Result<void> ControlListener::take_connections(const OnRefused& on_refused) {
  for (const FileDescriptor& socket : sockets_) {
    const int fd = ::accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // The last: a client has closed its connection meanwhile.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return fail(ErrorCode::kSystem,
                  "cannot accept a client ({}): close other programs' files or raise 'ulimit -n'",
                  std::strerror(errno));
    }
    if (waiting_.size() == kMaxWaiting) {
      on_refused({ErrorCode::kPeer, fmt::format("{} was dropped for others: it had sent nothing",
                                                waiting_.front().channel.peer())});
      waiting_.pop_front();
    }
    waiting_.push_back(
        {ControlChannel(FileDescriptor(fd)), cli::steady_now() + kGreetingLimit, {}});
  }
  return {};
}

// The client's greeting; null: it has not arrived.
Result<Json> ControlListener::first_message(Waiting& caller, std::string_view greeting) const {
  for (;;) {
    ASSIGN_OR_RETURN(auto message, caller.channel.poll());
    if (!message) return Json();
    ASSIGN_OR_RETURN(const auto proof, caller.proof.take(caller.channel, key_, *message));
    if (proof) continue;
    RETURN_IF_ERROR(caller.channel.require(*message, greeting));
    return std::move(*message);
  }
}

// Reads before it checks the deadline: a message that has arrived counts, however late it is read.
std::optional<Caller> ControlListener::take_greeted(std::string_view greeting,
                                                    const OnRefused& on_refused) {
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    auto message = first_message(*one, greeting);
    if (message && message->is_object()) {
      Caller caller{std::move(one->channel), std::move(*message)};
      waiting_.erase(one);
      return caller;
    }
    if (message && cli::steady_now() < one->deadline) {
      ++one;
      continue;
    }
    const Error why = message ? one->channel.timed_out(kGreetingLimit) : message.error();
    one->channel.send_error(why.message);
    on_refused(why);
    one = waiting_.erase(one);
  }
  return std::nullopt;
}

}  // namespace pacecar::perf
