// What users read when a request fails or a connection stalls. Thread rule: that of the connection.
#pragma once

#include <string>
#include <utility>

#include "transport/api/connections.h"
#include "transport/base/log.h"
#include "transport/message/messenger.h"

namespace pacecar {

// The error of a failed request. `peer`: for people, "192.0.2.1:4791 (soft:udp:eth0)". `fault`: the
// NIC's description of the failure, or empty. `own`: as of Attachment::own_trouble().
Error describe(MessageFailure failure, const std::string& peer, Duration timeout,
               const std::string& fault, const std::string& own = {});

// kInfo if the connection waits for the peer's application, which may only be computing.
LogLevel level_of(const Stall& stall);
// `end` names the flow for people: "send to 192.0.2.1:4791 over rxe0". `address`: of our NIC.
std::string describe(const Stall& stall, const std::string& end, const std::string& address);

// What the log says when FlowFacts::path_mtu has changed. `nic`: its name.
std::string describe_path(const FlowFacts& flow, const std::string& nic);

// Logs the stalls of the flows of a connection's NIC, and their ends, and changes of any path.
class StallWatch {
 public:
  // Cheap unless some connection of the NIC stalls.
  void check(const OwnNic& nic) {
    const uint64_t changes = nic.engine->report_changes();
    if (changes != std::exchange(seen_, changes)) report(nic);
  }

 private:
  static void report(const OwnNic& nic);

  uint64_t seen_ = 0;
};

}  // namespace pacecar
