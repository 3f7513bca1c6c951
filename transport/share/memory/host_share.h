// HostShare: a NIC's link as this process shares it with the others of its user on this host; and
// who shares a link, for people.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/share/memory/live_process.h"
#include "transport/share/memory/share_memory.h"
#include "transport/share/share_member.h"

namespace pacecar {

// What the link of a NIC is called among those of the host. NICs of software may differ in nothing
// but their address.
std::string link_name(std::string_view device, uint64_t guid);

class HostShare {
 public:
  // Errors: those of ShareMemory and LiveProcess;
  // kUnavailable (all slots are in use).
  static Result<std::unique_ptr<HostShare>> open(
      std::string_view link, Rate capacity, Instant now,
      const std::string& directory = default_share_directory());

  // One thread at a time.
  HostLink& outgoing() { return member_.outgoing(); }
  HostLink& incoming() { return member_.incoming(); }

 private:
  HostShare(ShareMemory memory, std::unique_ptr<LiveProcess> process, Rate capacity);

  ShareMemory memory_;
  const std::unique_ptr<LiveProcess> process_;
  ShareMember member_;
};

// A process that shares a link.
struct LinkSharer {
  struct Direction {
    LinkClaim claim;
    Rate taking;
    Rate learnt;         // what the link gives it, where that is less; 0: it does not
    bool lives = false;  // it has a demand, and has written in time

    // As the others count it.
    Rate demand() const { return lives ? claim.demand : Rate(); }
    // What it uses of its demand at most.
    Rate part() const {
      return lives ? std::min({taking, claim.demand, learnt > Rate() ? learnt : taking}) : Rate();
    }
  };
  pid_t process = 0;
  bool hidden = false;                  // of another process namespace, whose number `process` is
  std::string program;                  // printable
  std::array<Direction, 2> directions;  // by LinkDirection
};

// Those that have not ended. Takes no part in it. Errors: those of ShareMemory::find.
Result<std::vector<LinkSharer>> link_sharers(
    std::string_view link, Instant now, const std::string& directory = default_share_directory());

}  // namespace pacecar
