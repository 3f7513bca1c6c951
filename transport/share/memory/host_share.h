// HostShare: a NIC's link, shared with the other processes of this user on this host; and the list
// of sharers, for display. The link's ShareTable is in a file of /dev/shm that processes of one
// user have in common. Trust: directory and file belong to this user alone and are not symbolic
// links, so only processes of this user write there. The name has the version of the table, the
// link, and the network and time namespaces: two containers may both have an eth0, and clocks
// differ between time namespaces. A zeroed file is an empty table, so a process that is killed
// while it makes one leaves nothing half done. The mapping of a table holds a shared lock on the
// file (flock), which the kernel drops with it: who opens a table removes those without a lock.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/share/memory/live_process.h"
#include "transport/share/share_link.h"
#include "transport/share/share_table.h"

namespace pacecar {

std::string default_share_directory();  // pacecar-UID in /dev/shm.

struct UnmapTable {
  void operator()(ShareTable* table) const;
};
using ShareMemory = std::unique_ptr<ShareTable, UnmapTable>;

// Makes missing files, and removes tables that no process uses. Errors: kPermission (of
// another user, or open to others), kSystem (no shared memory, or none left), kInvalidArgument (the
// table is not of this version).
Result<ShareMemory> open_share_memory(const std::string& directory, std::string_view link);
// The link's table, to read. Errors: as for open_share_memory; kNotFound.
Result<ShareMemory> find_share_memory(const std::string& directory, std::string_view link);

// The name of a NIC's link, unique on the host. Software NICs may differ only in their address.
std::string link_name(std::string_view device, uint64_t guid);

class HostShare {
 public:
  // Errors: as open_share_memory and LiveProcess; kUnavailable (all slots are in use).
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
    Rate learnt;         // its learnt rate, if less than nominal; 0: not
    bool lives = false;  // it has a demand, and has written in time

    // As others count it.
    Rate demand() const { return lives ? claim.demand : Rate(); }
    // The most that it uses.
    Rate part() const {
      return lives ? std::min({taking, claim.demand, learnt > Rate() ? learnt : taking}) : Rate();
    }
  };
  pid_t process = 0;
  bool hidden = false;                  // of another process namespace, whose number `process` is
  std::string program;                  // printable
  std::array<Direction, 2> directions;  // by LinkDirection
};

// The processes that have not ended. Only reads the table. Errors: as find_share_memory.
Result<std::vector<LinkSharer>> link_sharers(
    std::string_view link, Instant now, const std::string& directory = default_share_directory());

}  // namespace pacecar
