// A queue pair of the software NIC: both halves, and who the peer is.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/nic/nic.h"
#include "transport/softnic/requester.h"
#include "transport/softnic/responder.h"
#include "transport/wire/packet.h"

namespace pacecar {

// What two queue pairs tell each other before they talk; QueuePairAddress holds its encoded form.
struct SoftEndpoint {
  Address address;
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;       // of the packets that this side sends
  uint32_t window_packets = 0;  // that this side accepts beyond the cumulative one
  uint32_t writes = 0;          // with immediate, that this side tracks at once
  uint32_t mtu = 0;
  bool full_checksum = false;  // this side insists on a checksum over the payload
};

QueuePairAddress encode(const SoftEndpoint& endpoint);
// Errors: kPeer for anything that encode() does not write, or values out of range.
Result<SoftEndpoint> decode_endpoint(std::span<const uint8_t> bytes);

struct QueuePair {
  enum class State : uint8_t { kCreated, kConnected, kBroken };

  SoftEndpoint local;
  SoftEndpoint remote;
  QueuePairConfig config;
  State state = State::kCreated;
  CompletionStatus broken_by = CompletionStatus::kOk;
  wire::Coverage coverage = wire::Coverage::kFull;
  Instant ack_deadline;                 // of the acknowledgement that may wait
  Bytes unacknowledged_bytes = 0;       // received since the last acknowledgement
  uint32_t unacknowledged_packets = 0;  // likewise
  bool ack_owed = false;                // asked for while packets before were missing
  uint32_t answer_path = 0;             // of the next acknowledgement or refusal
  std::optional<Requester> requester;   // both from connect on
  std::optional<Responder> responder;
};

}  // namespace pacecar
