#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "transport/base/random_word.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

using bootstrap::Channel;
using bootstrap::ChannelStatus;
using bootstrap::FrameType;
using bootstrap::Handshake;

// Callers in the handshake at once; others wait in the kernel's backlog. Each takes about 8 KiB.
constexpr size_t kMaxCallers = 64;

// After this time a caller may be dropped for a new one. Longer than two round trips across a
// continent, and silent callers delay a peer by at most kGrace * backlog / kMaxCallers = 0.4 s.
constexpr Duration kGrace = Duration::from_ms(100);

// Between two log lines about callers without a proof, so that they cannot fill the log.
constexpr Duration kWarningPause = Duration::from_s(10);

// 0.0.0.0
constexpr std::array<uint8_t, 16> kIpv4Anywhere{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

}  // namespace

BootstrapListener::BootstrapListener(bootstrap::Socket socket, const Address& local,
                                     const bootstrap::Secret& secret,
                                     const bootstrap::Identity& identity, Duration timeout,
                                     const bootstrap::ClusterKey& cluster)
    : socket_(std::move(socket)),
      address_{.ip = local.ip, .scope_id = local.scope_id, .port = socket_.local().port},
      key_(bootstrap::handshake_key(secret, cluster)),
      has_cluster_key_(cluster),
      handle_(bootstrap::encode_handle({address_, secret, identity})),
      timeout_(timeout) {
  callers_.reserve(kMaxCallers);
}

Result<std::unique_ptr<BootstrapListener>> BootstrapListener::open(
    const Address& local, const bootstrap::Identity& identity, Duration handshake_timeout,
    const bootstrap::ClusterKey& cluster, const bootstrap::Reach& reach) {
  if (is_unspecified(local)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot listen on {}: peers need an address to connect to, so give "
                            "that of a network interface",
                            ip_to_string(local)));
  }
  Address at = local;
  if (reach.all_addresses) at.ip = is_ipv4(local) ? kIpv4Anywhere : std::array<uint8_t, 16>();
  auto socket = bootstrap::Socket::listen_on(at, reach.ports);
  if (!socket) {
    const bool of_range = local.port == 0 && reach.ports.first != 0;
    const std::string what =
        of_range ? fmt::format("cannot listen on {}, TCP ports {}-{}", ip_to_string(local),
                               reach.ports.first, reach.ports.last)
                 : "cannot listen on " + to_string(local);
    return tl::unexpected(bootstrap::socket_error(what, errno));
  }
  return std::unique_ptr<BootstrapListener>(
      new BootstrapListener(std::move(socket), local, random_value<bootstrap::Secret>(), identity,
                            handshake_timeout, cluster));
}

std::unique_ptr<BootstrapSession> BootstrapListener::poll(Instant now) {
  if (!lonely_at_) {
    lonely_at_ = now + bootstrap::kPatience;
    const Duration limit = timeout_ * bootstrap::kLatePeer;
    missing_ = {now + limit,
                {ErrorCode::kPeer,
                 fmt::format("no peer has connected at {} (TCP) within {:g} s ({} times "
                             "PACECAR_CONNECT_TIMEOUT): look for the first error of the other "
                             "ranks; if one is only late, raise the parameter",
                             to_string(address_), limit.seconds(), bootstrap::kLatePeer)}};
  }
  strangers_ += std::erase_if(callers_, [&](auto& caller) { return !advance(*caller, now); });
  accept_callers(now);
  return take_authenticated(now);
}

bool BootstrapListener::lonely(Instant now) {
  if (!lonely_at_ || now < *lonely_at_) return false;
  lonely_at_ = Instant::never();
  return true;
}

std::optional<Error> BootstrapListener::take_missing(Instant now) {
  if (!missing_ || now < missing_->first) return std::nullopt;
  return std::exchange(missing_, std::nullopt)->second;
}

void BootstrapListener::accept_callers(Instant now) {
  for (size_t accepted = 0; accepted < kMaxCallers; ++accepted) {
    auto oldest = callers_.end();
    if (callers_.size() == kMaxCallers) {
      oldest = std::find_if(callers_.begin(), callers_.end(), [](const auto& caller) {
        return caller->stage_ != BootstrapSession::Stage::kProved;
      });
      if (oldest == callers_.end() || now < (*oldest)->arrived_ + kGrace) return;
    }
    Address remote;
    auto socket = socket_.accept(remote);
    if (!socket) {
      if (errno != EAGAIN)
        warn(bootstrap::socket_error("cannot accept callers", errno).message, now);
      return;
    }
    if (oldest != callers_.end()) {
      callers_.erase(oldest);
      ++strangers_;
    }
    const Handshake handshake{.key = key_, .listener_nonce = random_value<bootstrap::Nonce>()};
    std::unique_ptr<BootstrapSession> caller(
        new BootstrapSession(Channel(std::move(socket), remote), handshake, now, timeout_));
    if (advance(*caller, now)) {
      callers_.push_back(std::move(caller));
    } else {
      ++strangers_;
    }
  }
}

// False: the caller must be dropped. Reads before it checks the deadline, so that frames which
// arrived in time count even if the owner polls late.
bool BootstrapListener::advance(BootstrapSession& caller, Instant now) {
  Channel& channel = caller.channel_;
  if (caller.stage_ == BootstrapSession::Stage::kHello) {
    const auto status = channel.receive(FrameType::kHello);
    if (status == ChannelStatus::kPending) return now < caller.deadline_;
    if (status == ChannelStatus::kOtherVersion) {
      channel.queue(bootstrap::encode_frame(FrameType::kVersionNotice, {}));
      channel.flush();
    }
    if (status != ChannelStatus::kReady) return false;
    caller.handshake_.connector_nonce = *bootstrap::parse_nonce(channel.body());
    channel.queue(caller.handshake_.seal(FrameType::kChallenge, caller.handshake_.listener_nonce));
    caller.stage_ = BootstrapSession::Stage::kOffer;
  }
  if (caller.stage_ == BootstrapSession::Stage::kOffer) {
    channel.flush();
    const auto status = channel.receive(FrameType::kOffer);
    if (status == ChannelStatus::kPending) return now < caller.deadline_;
    if (status != ChannelStatus::kReady) return false;
    const auto offer = caller.handshake_.open(FrameType::kOffer, channel.body());
    if (!offer) {
      warn(bootstrap::without_proof("the caller at " + to_string(channel.peer()), has_cluster_key_),
           now);
      return false;
    }
    caller.offer_.assign(offer->begin(), offer->end());
    caller.stage_ = BootstrapSession::Stage::kProved;
  }
  return true;
}

void BootstrapListener::warn(std::string line, Instant now) {
  if (next_warning_ && now < *next_warning_) return;
  next_warning_ = now + kWarningPause;
  warning_ = std::move(line);
}

std::unique_ptr<BootstrapSession> BootstrapListener::take_authenticated(Instant now) {
  const auto proved = std::find_if(callers_.begin(), callers_.end(), [](const auto& caller) {
    return caller->stage_ == BootstrapSession::Stage::kProved;
  });
  if (proved == callers_.end()) return nullptr;
  auto session = std::move(*proved);
  lonely_at_ = Instant::never();
  missing_.reset();
  session->deadline_ = now + timeout_;
  callers_.erase(proved);
  return session;
}

}  // namespace pacecar
