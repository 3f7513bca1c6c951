#include "bench/perf/control_proof.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/perf/clock.h"
#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using bootstrap::ClusterKey;
using bootstrap::Mac;
using bootstrap::Nonce;
using Json = nlohmann::json;

constexpr std::string_view kPurpose = "pacecar control channel";
constexpr std::string_view kCure =
    "let PACECAR_KEY_FILE name the same key on both hosts or on neither";
constexpr std::string_view kNonsense = "sends no usable proof of the cluster key";

Result<void> draw(Nonce& nonce) {
  if (bootstrap::fill_random(nonce)) return {};
  return fail(ErrorCode::kSystem,
              "the system gives no random numbers: check the OpenSSL configuration");
}

// Both ends print it.
tl::unexpected<Error> refuse(const ControlChannel& channel, std::string_view why) {
  return fail(ErrorCode::kPeer, fmt::format("the client {} {}: {}", channel.peer(), why, kCure));
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
  const Instant deadline = steady_now() + limit;
  ControlProof proof;
  RETURN_IF_ERROR(draw(proof.client));
  RETURN_IF_ERROR(channel.send({{"type", "prove"}, {"nonce", to_hex(proof.client)}}));
  ASSIGN_OR_RETURN(const auto challenge, channel.expect("challenge", limit));
  RETURN_IF_ERROR(bytes_field(challenge, "nonce", proof.server));
  RETURN_IF_ERROR(channel.send({{"type", "proof"}, {"mac", to_hex(proof.mac(key, "client"))}}));
  ASSIGN_OR_RETURN(const auto answer,
                   channel.expect("proof", std::max(deadline - steady_now(), Duration())));
  Mac mac;
  RETURN_IF_ERROR(bytes_field(answer, "mac", mac));
  if (bootstrap::same_mac(mac, proof.mac(key, "server"))) return {};
  return fail(ErrorCode::kPeer, fmt::format("the server {} has another cluster key than the "
                                            "client: {}",
                                            channel.peer(), kCure));
}

Result<bool> CallerProof::take(ControlChannel& channel, const ClusterKey& key,
                               const Json& message) {
  if (stage_ == Stage::kProved) return false;
  if (stage_ == Stage::kChallenged) return check(channel, key, message);
  const bool proves = message.value("type", Json()) == "prove";
  if (!proves && !key) return false;
  if (!proves) return refuse(channel, "does not show the cluster key that the server asks for");
  if (!key) return refuse(channel, "has a cluster key, and the server has none");
  return challenge(channel, message);
}

Result<bool> CallerProof::challenge(ControlChannel& channel, const Json& message) {
  if (!bytes_field(message, "nonce", proof_.client)) return refuse(channel, kNonsense);
  RETURN_IF_ERROR(draw(proof_.server));
  RETURN_IF_ERROR(channel.send({{"type", "challenge"}, {"nonce", to_hex(proof_.server)}}));
  stage_ = Stage::kChallenged;
  return true;
}

Result<bool> CallerProof::check(ControlChannel& channel, const ClusterKey& key,
                                const Json& message) {
  RETURN_IF_ERROR(channel.require(message, "proof"));
  Mac mac;
  if (!bytes_field(message, "mac", mac)) return refuse(channel, kNonsense);
  if (!bootstrap::same_mac(mac, proof_.mac(key, "client"))) {
    return refuse(channel, "has another cluster key than the server");
  }
  RETURN_IF_ERROR(channel.send({{"type", "proof"}, {"mac", to_hex(proof_.mac(key, "server"))}}));
  stage_ = Stage::kProved;
  return true;
}

}  // namespace pacecar::perf
