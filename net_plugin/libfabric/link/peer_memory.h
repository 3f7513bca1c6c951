// The memory of a peer's process on this host, read without a NIC (cross-memory attach).
//
// The kernel says which process sent the greeting (endpoint_bootstrap.h); the greeting tells where
// in it the token of that greeting is. The token is read behind the bytes. If it is another one,
// the peer has ended or has given this endpoint up: the bytes do not count. Bytes of a memory
// region have a guard besides, which changes when the region is closed.
//
// Only read, never written: a process that is late, dead or hostile can harm nobody's memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/pieces.h"

namespace pacecar::fabric {

// A word of the peer's process that keeps this value while the bytes beside it are valid.
struct Guard {
  uint64_t address = 0;
  uint64_t value = 0;
};

class PeerMemory {
 public:
  struct Part {  // less than 2 GiB: what one system call reads
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // nullopt: the kernel forbids it (ptrace_scope, seccomp), or no such token is there.
  static std::optional<PeerMemory> open(pid_t process, uint64_t token_address, const Token& token);

  // Reads these bytes of the segments into the same of the pieces, as far as there is room. False:
  // not all could be read, such as memory of a device, or they are not valid any more; the pieces'
  // content is undefined.
  bool read(std::span<const RemoteSegment> from, std::span<const Piece> to, Part part,
            const std::optional<Guard>& guard = std::nullopt) const;

 private:
  PeerMemory(pid_t pid, uint64_t token_address, const Token& token)
      : pid_(pid), token_address_(token_address), token_(token) {}
  bool read_run(uint64_t from, Piece to, const Guard& guard) const;
  Guard token_guard() const { return {token_address_, token_[0]}; }

  pid_t pid_;
  uint64_t token_address_;
  Token token_;
};

}  // namespace pacecar::fabric
