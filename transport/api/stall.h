// Why a connection stalls, in words.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

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
  // `stall(messenger)` returns the connection's. Cheap unless some connection of the NIC stalls.
  template <typename GetStall>
  void look(const Attachment& at, std::string_view what, GetStall stall) {
    const uint64_t changes = at.nic.engine->stall_changes();
    if (changes == seen_) return;
    seen_ = changes;
    const std::optional<Stall> found = at.nic.engine->exclusively(
        [&stall](const Messenger& messenger, Nic&, Instant) { return stall(messenger); });
    const std::string end = fmt::format("{} {} over {}", what, at.peer, at.nic.name);
    if (found && !reported_) {
      reported_ = level_of(*found);
      at.nic.log(*reported_, describe(*found, end));
    } else if (!found && reported_) {
      at.nic.log(*reported_, end + " moves again");
      reported_.reset();
    }
  }

 private:
  uint64_t seen_ = 0;
  std::optional<LogLevel> reported_;  // of the present stall
};

}  // namespace pacecar
