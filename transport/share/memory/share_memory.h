// ShareMemory: a ShareTable in a file of /dev/shm that processes of one user have in common.
//
// Trust: directory and file belong to this user alone and are no symbolic links, so only processes
// of this user write there. The name has the version of the table, the link, and the network and
// time namespaces: two containers may both have an eth0, and clocks differ between time namespaces.
// A zeroed file is an empty table, so a process that is killed while it makes one leaves nothing
// half done.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/share/share_table.h"

namespace pacecar {

// pacecar-UID in /dev/shm.
std::string default_share_directory();

struct UnmapTable {
  void operator()(ShareTable* table) const;
};
using ShareMemory = std::unique_ptr<ShareTable, UnmapTable>;

// Makes what is missing. Errors: kPermission (another's, or open to others), kSystem (no shared
// memory, or none left), kInvalidArgument (no such table as this version's).
Result<ShareMemory> open_share_memory(const std::string& directory, std::string_view link);
// The link's table, to read. Errors: as for open_share_memory; kNotFound.
Result<ShareMemory> find_share_memory(const std::string& directory, std::string_view link);

}  // namespace pacecar
