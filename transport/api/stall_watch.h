// Logs why a connection stalls, once it has made no progress for a while.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "transport/api/connections.h"
#include "transport/api/stall.h"

namespace pacecar {

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
