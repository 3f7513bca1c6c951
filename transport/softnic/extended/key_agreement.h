// KeyAgreement: the NIC's key pair, and the secrets that it has agreed on with peers. An agreement
// is the slowest part of a connection, so it is made once per peer.
// Bounded: when there are too many secrets, all are forgotten. Thread rule: one owner.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "transport/base/result.h"
#include "transport/security/key_exchange.h"
#include "transport/softnic/config.h"
#include "transport/softnic/extended/packet_guard.h"
#include "transport/softnic/queue_pair.h"
#include "transport/softnic/random_source.h"

namespace pacecar {

class KeyAgreement {
 public:
  // With PACECAR_SECURITY=off, or for standard RC alone, it has no keys. `config` outlives it.
  KeyAgreement(const SoftNicConfig& config, const RandomSource& random);

  // Puts our public key and a fresh salt into an end.
  void announce(SoftEndpoint& end, const RandomSource& random) const;
  // The guard of a connection, whose ends are known; null without security. Errors: kPeer.
  Result<std::unique_ptr<PacketGuard>> make_guard(const QueuePair& qp, wire::Coverage coverage);
  // Memory of the guard of one queue pair.
  Bytes guard_bytes() const { return keys_ ? PacketGuard::bytes(replay_window()) : 0; }

 private:
  std::optional<Secret> agree(const KeyExchange::PublicKey& peer);
  uint32_t replay_window() const { return config_.window_packets * 2; }

  const SoftNicConfig& config_;
  std::optional<KeyExchange> keys_;
  std::map<KeyExchange::PublicKey, Secret> secrets_;  // by the peer's key; a cache
};

}  // namespace pacecar
