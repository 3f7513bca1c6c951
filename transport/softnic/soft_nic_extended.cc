// The part of SoftNic that connects two software NICs in extended mode, and agrees on their keys.
#include <algorithm>

#include "transport/base/return_if_error.h"
#include "transport/security/key_derivation.h"
#include "transport/softnic/soft_nic.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// The secret of a connection's packets from one end to the other. Only the two NICs can derive it.
Secret packet_secret(const Secret& common, const SoftEndpoint& from, const SoftEndpoint& to) {
  std::array<uint8_t, 2 * 16> ends;
  uint8_t* at = ends.data();
  for (const SoftEndpoint* end : {&from, &to}) {
    wire::store_be32(end->queue_pair, at);
    wire::store_be32(end->first_psn, at + 4);
    wire::store_be64(end->salt, at + 8);
    at += 16;
  }
  Secret secret;
  derive_key(common, ends, "packets", secret);
  return secret;
}

}  // namespace

Result<void> SoftNic::connect_extended(QueuePair& qp, const SoftEndpoint& remote) {
  qp.remote = remote;
  qp.remote.address.scope_id = config_.address.scope_id;  // scopes are numbered per host
  const bool full = qp.local.full_checksum || qp.remote.full_checksum;
  qp.coverage = full ? wire::Coverage::kFull : wire::Coverage::kHeader;
  ASSIGN_OR_RETURN(auto guard, make_guard(qp));
  qp.guard = std::move(guard);
  LossRecovery loss = config_.loss;
  if (!qp.config.paced) {  // control writes keep to one path, and are acknowledged late
    loss.reordering = {};
    loss.packet_timeout = {};
  }
  qp.requester.emplace(Requester::Config{
      .peer_queue_pair = qp.remote.queue_pair,
      .first_psn = wide_psn(qp.local.first_psn),
      .window_packets = std::min(send_window(qp.config), qp.remote.window_packets),
      .work_requests = std::min(work_requests(qp.config), qp.remote.writes),
      .mtu = std::min(qp.local.mtu, qp.remote.mtu),
      .path_policy = path_policy(qp.config),
      .paths = config_.paths,
      .path_seed = uint64_t{qp.local.first_psn} << 32 | qp.id,
      .delay_floor = config_.jitter,
      .loss = loss,
      .silence_limit = config_.silence_limit,
  });
  qp.responder.emplace(qp.local.window_packets, qp.local.writes, wide_psn(qp.remote.first_psn),
                       config_.mtu);
  qp.state = QueuePair::State::kConnected;
  join_siblings(qp);
  return {};
}

Result<std::unique_ptr<PacketGuard>> SoftNic::make_guard(const QueuePair& qp) {
  if (qp.remote.security != config_.security) {
    return fail(ErrorCode::kPeer,
                "the peer has PACECAR_SECURITY=" + std::string(name_of(qp.remote.security)) +
                    " and this host has PACECAR_SECURITY=" +
                    std::string(name_of(config_.security)) + ": set the same on all hosts");
  }
  if (!keys_) return nullptr;
  const auto common = agree(qp.remote.public_key);
  if (!common) {
    return fail(ErrorCode::kPeer,
                "the peer's queue pair address has no valid public key: both sides must run the "
                "same version of Pacecar");
  }
  return std::make_unique<PacketGuard>(PacketGuard::Config{
      .security = config_.security,
      .coverage = qp.coverage,
      .whole_payloads = !qp.config.paced,
      .replay_window = replay_window(),
      .packets_per_key_log2 = config_.packets_per_key_log2,
      .send = packet_secret(*common, qp.local, qp.remote),
      .receive = packet_secret(*common, qp.remote, qp.local),
  });
}

// Connections of standard RC need no halt: destroying them stops arrivals.
void SoftNic::halt_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  if (qp != nullptr && qp->requester && qp->state == QueuePair::State::kConnected) {
    qp->state = QueuePair::State::kHalted;
  }
}

// The key agreement is the slowest part of a connection, so it is done once per peer.
std::optional<Secret> SoftNic::agree(const KeyExchange::PublicKey& peer) {
  constexpr size_t kRemembered = 4096;
  if (const auto known = agreements_.find(peer); known != agreements_.end()) return known->second;
  const auto secret = keys_->agree(peer);
  if (agreements_.size() == kRemembered) agreements_.clear();
  if (secret) agreements_.emplace(peer, *secret);
  return secret;
}

bool SoftNic::opens(PacketGuard& guard, std::span<const uint8_t> packet, size_t header_bytes,
                    std::span<const uint8_t> placed) {
  const auto payload = placed.empty() ? body_of(packet).subspan(header_bytes) : placed;
  switch (guard.open(packet.first(header_bytes), payload, packet.last(trailer_bytes_),
                     opened_.data())) {
    case PacketGuard::Verdict::kGood:
      return true;
    case PacketGuard::Verdict::kForged:
      ++counters_.forged;
      break;
    case PacketGuard::Verdict::kReplayed:
      ++counters_.replayed;
      break;
  }
  return false;
}

}  // namespace pacecar
