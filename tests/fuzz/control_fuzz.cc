// Any bytes in the control channel of `pacecar bw` and `lat`, read as messages, proofs of the
// cluster's key, parameters and reports. An accepted message is the same after it is written and
// read again; no peer proves a key that it does not have.
#include <sys/socket.h>

#include <array>
#include <nlohmann/json.hpp>

#include "bench/cli/json_fields.h"
#include "bench/perf/control_listener.h"
#include "bench/perf/phase.h"
#include "bench/perf/test_parameters.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/json_mutator.h"
#include "transport/base/check.h"

namespace pacecar::perf::control_fuzz {
namespace {

using Json = nlohmann::json;

void read_message(const Json& message) {
  if (const auto parameters = test_parameters_from_json(message)) {
    const Json own = to_json(*parameters);
    PACECAR_CHECK(to_json(test_parameters_from_json(own).value()) == own);
    PACECAR_CHECK(parameters->connections <= kMaxConnections);
  }
  if (const auto report = end_report_from_json(message)) {
    const Json own = to_json(*report);
    PACECAR_CHECK(to_json(end_report_from_json(own).value()) == own);
  }
  if (const auto flow = flow_view_from_json(message)) {
    const Json own = to_json(*flow);
    PACECAR_CHECK(to_json(flow_view_from_json(own).value()) == own);
  }
  static_cast<void>(cli::number_field(message, "duration_s", 0, 1));
}

// Reads the message, and each of its members as a message.
void read_all(const Json& message) {
  read_message(message);
  if (!message.is_object()) return;
  for (const Json& member : message) {
    if (member.is_object()) read_message(member);
  }
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    PACECAR_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
    channel.emplace(FileDescriptor(ends[0]), "peer");
    peer = FileDescriptor(ends[1]);
  }
  std::optional<ControlChannel> channel;
  FileDescriptor peer;
};

}  // namespace

FUZZ_TARGET(control) {
  static const bootstrap::ClusterKey key{std::vector<uint8_t>(32, 7)};
  Pipe pipe;
  if (::send(pipe.peer.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
  ::shutdown(pipe.peer.get(), SHUT_WR);
  CallerProof with_key;
  CallerProof without_key;
  bool first = true;
  for (;;) {
    const auto message = pipe.channel->poll();
    if (!message || !*message) break;
    read_all(**message);
    const auto proved = with_key.take(*pipe.channel, key, **message);
    PACECAR_CHECK(!proved || *proved);
    const auto open = without_key.take(*pipe.channel, {}, **message);
    PACECAR_CHECK(!first || !open || !*open);
    first = false;
  }
  return 0;
}

}  // namespace pacecar::perf::control_fuzz
