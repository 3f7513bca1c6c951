// The memory of a peer's process on this host, read without a NIC (cross-memory attach).
//
// The kernel reports which process sent the greeting (endpoint_bootstrap.h); the greeting has the
// address of its token in that process. The token is read after the bytes. If it has changed, the
// peer has ended or has failed this endpoint, and the bytes are not valid. A memory region also has
// a guard: a word that changes when the region is closed.
//
// The memory is only read, never written: a process that is late, dead or hostile can harm nobody's
// memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/pieces.h"

namespace pacecar::fabric {

// A word of the peer's process that keeps this value while the bytes that it guards are valid.
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

  // Reads a part of the segments into the same part of the pieces, as far as there is room. False:
  // not all bytes could be read, such as those of a device's memory, or they are no longer valid;
  // the pieces' content is undefined.
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
