// The parameters that the client sets for both ends of a test, also as JSON on the control channel.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/base/result.h"

namespace pacecar::perf {

constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxIterations = 1'000'000'000'000;
constexpr double kMaxDurationSeconds = 1e7;
constexpr uint32_t kMaxConnections = 256;
constexpr uint64_t kMaxTimeoutMs = 3'600'000;  // of PACECAR_TIMEOUT
// Bounded by the receives that a connection can hold.
constexpr uint32_t kMaxDepth = kMaxRequests * kMaxReceiveBuffers;
// The most for the message buffers of one end; more is probably a mistake of units.
constexpr uint64_t kMaxBufferBytes = uint64_t{8} << 30;

struct TestParameters {
  uint64_t iterations = 1000;  // messages per connection and direction; unused with a duration
  double duration_s = 0;       // 0: count iterations
  uint32_t connections = 1;    // per direction
  uint32_t tx_depth = 8;       // messages in flight per connection
  uint32_t rx_depth = 16;      // receives posted per connection, in messages
  bool bidirectional = false;
  bool validate = false;     // every message carries a pattern that the receiver checks
  bool gigabits = false;     // unit of the bandwidth columns
  bool cpu_util = false;     // a column with CPU time
  bool reversed = false;     // the server sends, the client receives
  bool report_both = false;  // columns for each direction
  uint32_t post_list = 1;    // sends that are started together
  // The transport's own parameters, at both ends; empty or 0 leaves each end's own value.
  std::string congestion_control;
  uint32_t mtu_bytes = 0;
  uint32_t tos = 0;
  uint64_t rate_bps = 0;  // of one flow, headers included
  uint32_t sl = 0;
  uint64_t timeout_ms = 0;
};

// Settings for Context::open; `nics` is PACECAR_NICS, or empty.
std::vector<Setting> transport_settings(const TestParameters& parameters, const std::string& nics);

// Bytes of the buffers that one end needs in messages of `size` bytes.
uint64_t buffer_bytes(const TestParameters& parameters, uint64_t size);

nlohmann::json to_json(const TestParameters& parameters);
// Errors: kPeer when a member is missing or out of its bounds.
Result<TestParameters> test_parameters_from_json(const nlohmann::json& object);

}  // namespace pacecar::perf
