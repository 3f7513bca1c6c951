// Why a connection stalls, in words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "transport/api/connections.h"
#include "transport/base/log.h"
#include "transport/message/messenger.h"

namespace pacecar {

// kInfo if the peer is only computing, which happens in every job.
LogLevel level_of(const Stall& stall);
// `end` names the connection for people: "send to 192.0.2.1:4791 over rxe0".
std::string describe(const Stall& stall, const std::string& end);

// Logs it, once the connection has made no progress for a while.
class StallWatch {
 public:
  // `what` is "send to" or "receive from". Cheap unless some connection of the NIC stalls.
  void look(const Attachment& at, std::string_view what,
            std::optional<Stall> (Messenger::*stall)(ConnectionId) const) {
    const uint64_t changes = at.nic.engine->stall_changes();
    if (changes != std::exchange(seen_, changes)) report(at, what, at.call(stall));
  }

 private:
  void report(const Attachment& at, std::string_view what, const std::optional<Stall>& stall);

  uint64_t seen_ = 0;
  std::optional<LogLevel> reported_;  // of the present stall
};

}  // namespace pacecar
