// QueuePair: a queue pair of the software NIC, with its sending half, its receiving half and its
// peer. SoftEndpoint: one end of it, and how that end is encoded as a QueuePairAddress.
//
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/seq.h"
#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/nic.h"
#include "transport/nic/rc_endpoint.h"
#include "transport/softnic/datagrams.h"
#include "transport/softnic/packet_guard.h"
#include "transport/softnic/rc_requester.h"
#include "transport/softnic/rc_responder.h"
#include "transport/softnic/requester.h"
#include "transport/softnic/responder.h"
#include "transport/softnic/standby_messages.h"
#include "transport/wire/packet.h"

namespace pacecar {

// One end of a connection in extended mode. The ends exchange it, encoded in a QueuePairAddress,
// when they connect.
struct SoftEndpoint {
  Address address;
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;       // of the packets that this end sends
  uint32_t window_packets = 0;  // packets that this end accepts beyond the cumulative PSN
  uint32_t writes = 0;          // writes with immediate that this end can track at a time
  uint32_t mtu = 0;
  bool full_checksum = false;  // this end requires checksums over payloads
  Security security = Security::kOff;
  // With security: the NIC's public key, and a random salt, so that no two connections have the
  // same key.
  KeyExchange::PublicKey public_key{};
  uint64_t salt = 0;
};

// A peer's end. Every queue pair address has the endpoint of standard RC. If the peer offers
// extended mode, the address also has its SoftEndpoint.
struct PeerEndpoint {
  RcEndpoint standard;
  std::optional<RcLane> standby;  // the standby lane, over which failed connections are recovered
  std::optional<SoftEndpoint> extended;
  std::vector<SoftEndpoint> further;  // of the same queue pair, on other NICs of the same host
};

// Encodes `local` as an address, with or without extended mode and a standby lane. `further`: if
// NICs act as one, the ends of the same queue pair on the other NICs. They differ from `local` in
// port, numbers and salt. At most RcEndpoint::kMaxLanes ends in all; only in extended mode.
QueuePairAddress encode(const SoftEndpoint& local, bool extended,
                        const std::optional<RcLane>& standby,
                        std::span<const SoftEndpoint> further = {});
// Errors: kPeer for anything that encode() and other NICs of standard RC do not write, or values
// out of range.
Result<PeerEndpoint> decode_endpoint(std::span<const uint8_t> bytes);

// The largest payload of a packet of standard RC that fits in `mtu`: a power of two, at most 4096.
constexpr uint32_t standard_mtu(Bytes mtu) {
  return static_cast<uint32_t>(std::bit_floor(std::clamp<Bytes>(mtu, 256, 4096)));
}
// The 64-bit number of the first PSN. It is above 2^24, so numbers before it are not negative.
constexpr uint64_t wide_psn(uint32_t first) { return (uint64_t{1} << kPsnBits) + first; }
// Most outstanding read requests, each way.
inline constexpr uint8_t kReadsAtOnce = 16;

// A connection of standard RC, the one lane of its queue pair.
struct RcConnection {
  RcRequester requester;
  RcResponder responder;
  LaneRecovery recovery;
  CompletionStatus failed_by = CompletionStatus::kOk;  // while it is not up
  uint32_t futile = 0;            // connections in a row that our refusal ended without progress
  uint64_t finished = 0;          // our finished work requests when the last connection ended
  bool reliable = true;           // false: UC
  bool open = true;               // accepts packets: joined, and not failed since
  Instant next_notification;      // earliest next CNP
  bool notification_due = false;  // a marked packet has arrived
};

struct QueuePair {
  // kOpen: it receives and sends datagrams.
  enum class State : uint8_t { kCreated, kConnected, kHalted, kBroken, kOpen };

  QueuePairId id = 0;  // its first number; packets have local.queue_pair
  SoftEndpoint local;
  SoftEndpoint remote;
  QueuePairConfig config;
  State state = State::kCreated;
  CompletionStatus broken_by = CompletionStatus::kOk;
  // As text, how the peer broke the queue pair; null: the status is enough.
  const char* fault = nullptr;
  wire::Coverage coverage = wire::Coverage::kFull;  // of checksums
  std::unique_ptr<PacketGuard> guard;
  Instant ack_deadline;                 // when the next acknowledgement must leave
  Bytes unacknowledged_bytes = 0;       // received since the last acknowledgement
  uint32_t unacknowledged_packets = 0;  // received since the last acknowledgement
  bool ack_owed = false;                // requested while earlier packets were missing
  uint32_t answer_path = 0;             // of the next acknowledgement or refusal
  uint32_t sibling = 0;                 // slot of the next queue pair with this peer's NIC, a ring
  FixedQueue<ReceiveRequest> receives{0};
  FixedQueue<ReceiveRequest>* shared_receives = nullptr;  // used instead of `receives`
  std::optional<RcLane> standby;                          // our end of its standby lane
  std::unique_ptr<StandbyMessages> messages;              // only of a standby lane
  // Once connected: in extended mode the first two, with standard RC the third.
  std::optional<Requester> requester;
  std::optional<Responder> responder;
  std::unique_ptr<RcConnection> rc;
  std::unique_ptr<Datagrams> datagrams;  // of UD, while it is open

  FixedQueue<ReceiveRequest>& receive_queue() {
    return shared_receives != nullptr ? *shared_receives : receives;
  }
  // The sending half, of either mode. Only once connected.
  size_t post(std::span<const WorkRequest> work_requests) {
    return rc ? rc->requester.post(work_requests) : requester->post(work_requests);
  }
  bool has_work() const {
    return rc ? rc->recovery.up() && rc->requester.has_work() : requester->has_work();
  }
  // Work requests are posted and not completed.
  bool has_requests() const {
    return rc ? rc->requester.has_requests() : requester->has_requests();
  }
  bool probing() const { return rc ? rc->requester.probing() : requester->probing(); }
  bool rerouting() const { return !rc && requester->rerouting(); }
  uint16_t choose_path(Instant now) {
    return rc ? rc->requester.choose_path(now) : requester->choose_path(now);
  }
  Bytes next_bytes() { return rc ? rc->requester.next_bytes() : requester->next_bytes(); }
  Bytes in_flight() const { return rc ? rc->requester.in_flight() : requester->in_flight(); }
  void revoke(uint32_t key) { rc ? rc->requester.revoke(key) : requester->revoke(key); }
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status) {
    return rc ? rc->requester.pop_completed(work_request, status)
              : requester->pop_completed(work_request, status);
  }
  Instant deadline() const {
    if (!rc) return requester->deadline();
    return rc->recovery.up() ? rc->requester.deadline() : rc->recovery.deadline();
  }
  SendTimeout on_timeout(Instant now, SendProgress* progress) {
    return rc ? rc->requester.on_timeout(now, progress) : requester->on_timeout(now, progress);
  }
};

}  // namespace pacecar
