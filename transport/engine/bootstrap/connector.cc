#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "transport/base/check.h"
#include "transport/base/printable.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

using bootstrap::ChannelStatus;
using bootstrap::FrameType;

// Pauses between attempts double from the first to the last: a listener that is about to start is
// found soon, and an overloaded one is not flooded by thousands of peers.
constexpr Duration kFirstPause = Duration::from_ms(10);
constexpr Duration kLastPause = Duration::from_ms(320);

constexpr std::string_view kRefused =
    "its process has ended, or a firewall rejects this port (PACECAR_PORTS sets the range)";
constexpr std::string_view kOtherHost =
    "its process has ended, or is on another host with an address that this host has, too: give "
    "each host addresses of its own, or let PACECAR_NICS name other NICs";
constexpr std::string_view kUnreachable =
    "a link is down, two hosts have one MAC address ('ip link', 'ip neigh'), or these two networks "
    "have no route to each other: check cables, rails and routes";
constexpr const char* kClosed = "it closed the connection";
constexpr std::string_view kTooBusy = "its process is too busy, or something between resets it";

}  // namespace

BootstrapConnector::BootstrapConnector(const bootstrap::HandleContents& contents,
                                       const Address& local, std::span<const uint8_t> offer,
                                       Duration timeout, const bootstrap::ClusterKey& cluster,
                                       Instant now)
    : listener_(contents.address),
      local_(local),
      handshake_{.key = bootstrap::handshake_key(contents.secret, cluster)},
      has_cluster_key_(cluster),
      offer_(offer.begin(), offer.end()),
      timeout_(timeout),
      deadline_(now + timeout),
      pause_(kFirstPause),
      next_attempt_(now),
      next_warning_(now + bootstrap::kPatience) {
  if (is_link_local(listener_)) listener_.scope_id = local.scope_id;
}

Result<std::unique_ptr<BootstrapConnector>> BootstrapConnector::open(
    const BootstrapHandle& handle, const Address& local, std::span<const uint8_t> offer,
    Duration timeout, const bootstrap::ClusterKey& cluster, Instant now) {
  PACECAR_CHECK(offer.size() <= kMaxBootstrapPayload);
  ASSIGN_OR_RETURN(const auto contents, bootstrap::parse_handle(handle));
  std::unique_ptr<BootstrapConnector> connector(
      new BootstrapConnector(contents, local, offer, timeout, cluster, now));
  RETURN_IF_ERROR(connector->start(now));
  return connector;
}

std::string BootstrapConnector::peer() const { return to_string(listener_); }

Result<std::optional<std::vector<uint8_t>>> BootstrapConnector::poll(Instant now) {
  PACECAR_CHECK(stage_ < Stage::kAnswered);
  const Step step = in_time(advance(now), now);
  if (!step) return tl::unexpected(step.error());
  if (!*step) return std::nullopt;
  return std::move(reply_);
}

Result<bool> BootstrapConnector::confirm(Instant now) {
  PACECAR_CHECK(stage_ == Stage::kAnswered || stage_ == Stage::kConfirm);
  if (stage_ == Stage::kAnswered) {
    channel_->queue(handshake_.seal(FrameType::kConfirm, {}));
    stage_ = Stage::kConfirm;
  }
  return in_time(flush_confirm(), now);
}

// The result of a step, or the error if the connector's time is over.
BootstrapConnector::Step BootstrapConnector::in_time(Step step, Instant now) {
  const Instant end = waits() ? connected_ + limit() : deadline_;
  if (step && (*step || now < end)) return step;
  const std::string text = no_connection(fmt::format("within {:g} s", limit().seconds()));
  stage_ = Stage::kEnded;
  channel_.reset();
  if (!step) return step;
  return fail(ErrorCode::kPeer, text);
}

std::optional<std::string> BootstrapConnector::take_warning(Instant now) {
  if (now < next_warning_ || stage_ >= Stage::kAnswered) return std::nullopt;
  next_warning_ = Instant::never();
  return no_connection(fmt::format("for {:g} s", bootstrap::kPatience.seconds())) +
         fmt::format("; it is tried for {:g} s ({}PACECAR_CONNECT_TIMEOUT)", limit().seconds(),
                     waits() ? fmt::format("{} times ", bootstrap::kLatePeer) : "");
}

bool BootstrapConnector::unanswered() const {
  const bool connecting = stage_ == Stage::kWaiting || stage_ == Stage::kConnecting;
  return connecting && (cure_ == bootstrap::kNoAnswer || cure_ == kUnreachable);
}

std::string BootstrapConnector::no_connection(std::string_view since) const {
  std::string_view cause = "connected, but silent";
  std::string_view cure =
      "its process is busy or stopped, waits for another rank, or has too many open files; or "
      "packets pass one way only (NAT, routes)";
  if (stage_ == Stage::kWaiting || stage_ == Stage::kConnecting) {
    cause = last_cause_;
    cure = cure_;
  }
  const bool named = !is_unspecified(local_) && is_ipv4(local_) == is_ipv4(listener_);
  return fmt::format("no connection from {} to the listener at {} (TCP) {} ({}): {}",
                     named ? ip_to_string(local_) : "this host", peer(), since, cause, cure);
}

// True: answered.
BootstrapConnector::Step BootstrapConnector::advance(Instant now) {
  while (stage_ < Stage::kAnswered) {
    const Step step = stage_ == Stage::kWaiting      ? start(now)
                      : stage_ == Stage::kConnecting ? finish_connect(now)
                      : stage_ == Stage::kChallenge  ? take_challenge(now)
                                                     : take_reply();
    if (!step || !*step) return step;
  }
  return true;
}

BootstrapConnector::Step BootstrapConnector::start(Instant now) {
  if (now < next_attempt_ || now >= deadline_) return false;
  handshake_.connector_nonce = random_value<bootstrap::Nonce>();
  auto socket = bootstrap::Socket::connect_to(listener_, local_);
  if (!socket) return connect_failed(errno, now);
  channel_.emplace(std::move(socket), listener_);
  stage_ = Stage::kConnecting;
  return true;
}

BootstrapConnector::Step BootstrapConnector::finish_connect(Instant now) {
  const int error = channel_->connect_error();
  if (error == EINPROGRESS) return false;
  if (error != 0) return connect_failed(error, now);
  channel_->queue(bootstrap::encode_frame(FrameType::kHello, handshake_.connector_nonce));
  channel_->expect_host(timeout_);
  connected_ = now;
  stage_ = Stage::kChallenge;
  return true;
}

BootstrapConnector::Step BootstrapConnector::connect_failed(int error, Instant now) {
  const std::string cause = std::generic_category().message(error);
  const bool own = is_loopback(listener_) || same_ip(listener_, local_);
  switch (error) {
    case ECONNREFUSED:  // not yet started, or its backlog is full
    case ECONNRESET: return try_later(cause, own ? kOtherHost : kRefused, now);
    case ETIMEDOUT: return try_later(cause, bootstrap::kNoAnswer, now);
    case ENETUNREACH:
    case EHOSTUNREACH:  // its link may be coming up
      return try_later(cause, kUnreachable, now);
    default:
      return tl::unexpected(bootstrap::socket_error(
          fmt::format("cannot connect to {} from {}", peer(), ip_to_string(local_)), error));
  }
}

BootstrapConnector::Step BootstrapConnector::try_later(std::string cause, std::string_view cure,
                                                       Instant now) {
  channel_.reset();
  last_cause_ = std::move(cause);
  cure_ = cure;
  stage_ = Stage::kWaiting;
  next_attempt_ = now + pause_;
  pause_ = std::min(pause_ * 2, kLastPause);
  return false;
}

BootstrapConnector::Step BootstrapConnector::take_challenge(Instant now) {
  channel_->flush();
  const auto status = channel_->receive(FrameType::kChallenge);
  if (status == ChannelStatus::kPending) return false;
  deadline_ = deadline_ + (now - connected_);
  const bool closed = status == ChannelStatus::kClosed;
  if (closed && errno != 0 && errno != ECONNRESET) return connect_failed(errno, now);
  // A listener that drops a caller this early was too busy, or this side was too slow.
  if (closed) return try_later(kClosed, kTooBusy, now);
  if (status != ChannelStatus::kReady) return protocol_error(status);
  channel_->expect_host(Duration());
  const auto sealed = bootstrap::parse_sealed(channel_->body());
  handshake_.listener_nonce = *bootstrap::parse_nonce(sealed->content);
  if (!handshake_.open(FrameType::kChallenge, channel_->body())) {
    return challenge_without_proof();
  }
  if (channel_->at_end()) return try_later(kClosed, kTooBusy, now);
  channel_->queue(handshake_.seal(FrameType::kOffer, offer_));
  stage_ = Stage::kReply;
  return true;
}

// An offer with a MAC of zeros informs the listener, for its log.
BootstrapConnector::Step BootstrapConnector::challenge_without_proof() {
  channel_->queue(bootstrap::encode_frame(FrameType::kOffer, bootstrap::Mac{}));
  channel_->flush();
  std::string text = bootstrap::without_proof("the listener at " + peer(), has_cluster_key_);
  if (same_ip(listener_, local_)) {
    text += "; this host has that address: if another host has it, too, give each its own";
  }
  return fail(ErrorCode::kPeer, std::move(text));
}

BootstrapConnector::Step BootstrapConnector::take_reply() {
  const bool offered = channel_->flush() == ChannelStatus::kReady;
  const auto status = channel_->receive(FrameType::kReply);
  if (status == ChannelStatus::kPending) return false;
  if (status != ChannelStatus::kReady) return protocol_error(status);
  const auto content = handshake_.open(FrameType::kReply, channel_->body());
  const auto reply = content ? bootstrap::parse_reply(*content) : std::nullopt;
  if (!reply || !offered) return protocol_error(ChannelStatus::kForeign);
  if (reply->status != bootstrap::ReplyStatus::kAccepted) {
    const bool stale = reply->status == bootstrap::ReplyStatus::kStale;
    const std::string reason(reply->payload.begin(), reply->payload.end());
    return fail(
        stale ? ErrorCode::kStale : ErrorCode::kPeer,
        fmt::format("the listener at {} refused this connection: {}", peer(), printable(reason)));
  }
  reply_.assign(reply->payload.begin(), reply->payload.end());
  stage_ = Stage::kAnswered;
  return true;
}

BootstrapConnector::Step BootstrapConnector::flush_confirm() {
  const auto status = channel_->flush();
  if (status == ChannelStatus::kPending) return false;
  if (status != ChannelStatus::kReady) return protocol_error(status);
  stage_ = Stage::kEnded;
  return true;
}

BootstrapConnector::Step BootstrapConnector::protocol_error(ChannelStatus status) const {
  if (status == ChannelStatus::kOtherVersion) {
    return fail(ErrorCode::kPeer,
                fmt::format("the listener at {} speaks bootstrap version {}, this process version "
                            "{}: use the same Pacecar release on both hosts",
                            peer(), channel_->peer_version(), bootstrap::kVersion));
  }
  // Perhaps before it had read the offer, as it was too busy.
  if (status == ChannelStatus::kClosed) {
    return fail(ErrorCode::kStale,
                fmt::format("the listener at {} closed the connection before it answered: look for "
                            "the cause in its log",
                            peer()));
  }
  return fail(ErrorCode::kPeer,
              fmt::format("the program at {} is not the Pacecar listener of this handle, or its "
                          "bytes are changed on the way: look for a proxy or another program at "
                          "that port",
                          peer()));
}

}  // namespace pacecar
