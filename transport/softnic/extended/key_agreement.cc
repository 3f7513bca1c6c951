#include "transport/softnic/extended/key_agreement.h"

#include <fmt/format.h>

#include <array>

#include "transport/security/key_derivation.h"
#include "transport/wire/address.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

Secret random_secret(const RandomSource& random) {
  Secret secret;
  for (size_t i = 0; i < secret.size(); i += 4) wire::store_be32(random(), &secret[i]);
  return secret;
}

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

KeyAgreement::KeyAgreement(const SoftNicConfig& config, const RandomSource& random)
    : config_(config) {
  if (config.security == Security::kOff || config.wire_mode == WireMode::kRoce) return;
  keys_.emplace(config.key_seed ? *config.key_seed : random_secret(random));
}

void KeyAgreement::announce(SoftEndpoint& end, const RandomSource& random) const {
  if (!keys_) return;
  end.public_key = keys_->public_key();
  end.salt = uint64_t{random()} << 32 | random();
}

Result<std::unique_ptr<PacketGuard>> KeyAgreement::make_guard(const QueuePair& qp,
                                                              wire::Coverage coverage) {
  if (qp.remote.security != config_.security) {
    return fail(
        ErrorCode::kPeer,
        fmt::format(
            "PACECAR_SECURITY={} at {} and PACECAR_SECURITY={} at {}: set the same on all hosts",
            name_of(qp.remote.security), ip_to_string(qp.remote.address), name_of(config_.security),
            ip_to_string(qp.local.address)));
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
      .coverage = coverage,
      .whole_payloads = !qp.config.paced,
      .replay_window = replay_window(),
      .packets_per_key_log2 = config_.packets_per_key_log2,
      .send = packet_secret(*common, qp.local, qp.remote),
      .receive = packet_secret(*common, qp.remote, qp.local),
  });
}

std::optional<Secret> KeyAgreement::agree(const KeyExchange::PublicKey& peer) {
  constexpr size_t kRemembered = 4096;
  if (const auto known = secrets_.find(peer); known != secrets_.end()) return known->second;
  const auto secret = keys_->agree(peer);
  if (secrets_.size() == kRemembered) secrets_.clear();
  if (secret) secrets_.emplace(peer, *secret);
  return secret;
}

}  // namespace pacecar
