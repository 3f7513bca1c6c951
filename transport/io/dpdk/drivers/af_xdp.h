// Work that the AF_XDP driver of DPDK 22.11 leaves to its callers. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace pacecar {

// The AF_XDP sockets of this process: descriptors by inode. The driver does not close the socket of
// a closed device's buffers, which occupies the interface's queue; so the port closes it. It
// identifies its sockets by their inodes, which are not reused.
std::map<ino_t, int> xdp_sockets();

// Why a device on this interface probably did not open, and what to do.
std::string af_xdp_cure(const std::string& interface);

}  // namespace pacecar
