// What users read when a request fails or a connection stalls. Thread rule: that of the connection.
#pragma once

#include <optional>
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
// `end` names the connection for people: "send to 192.0.2.1:4791 over rxe0". `address`: of our NIC.
std::string describe(const Stall& stall, const std::string& end, const std::string& address);

// What the log says when FlowFacts::path_mtu has changed. `nic`: its name.
std::string describe_path(const FlowFacts& flow, const std::string& nic);

// Logs a connection's stall, and its end, and changes of any path of its NIC.
class StallWatch {
 public:
  // Cheap unless some connection of the NIC stalls.
  void check(const Attachment& at) {
    const uint64_t changes = at.nic.engine->report_changes();
    if (changes != std::exchange(seen_, changes)) report(at, at.call(&Lanes::stall));
  }

 private:
  void report(const Attachment& at, const std::optional<Stall>& stall);

  uint64_t seen_ = 0;
  std::optional<LogLevel> reported_;  // level of the present stall's line
};

}  // namespace pacecar
