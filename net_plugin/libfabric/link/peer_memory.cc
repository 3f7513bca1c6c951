#include "net_plugin/libfabric/link/peer_memory.h"

#include <sys/uio.h>

#include <algorithm>

namespace pacecar::fabric {

std::optional<PeerMemory> PeerMemory::open(pid_t process, uint64_t token_address,
                                           const Token& token) {
  const PeerMemory memory(process, token_address, token);
  const bool readable = process > 0 && memory.read_run(0, {}, memory.token_guard());
  return readable ? std::optional(memory) : std::nullopt;
}

bool PeerMemory::read(std::span<const RemoteSegment> from, std::span<const Piece> to, Part part,
                      const std::optional<Guard>& guard) const {
  const Guard last = guard.value_or(token_guard());
  bool whole = true;
  uint64_t position = 0;
  pair_pieces(
      from.size(), [&](size_t i) { return from[i].length; }, to.size(),
      [&](size_t j) { return to[j].size; },
      [&](size_t i, uint64_t from_offset, size_t j, uint64_t to_offset, uint64_t bytes) {
        // The run is at `position` of the whole.
        const uint64_t begin = std::max(position, part.offset);
        const uint64_t end = std::min(position + bytes, part.offset + part.bytes);
        if (whole && begin < end) {
          const uint64_t skipped = begin - position;
          whole = read_run(from[i].address + from_offset + skipped,
                           {to[j].data + to_offset + skipped, end - begin}, last);
        }
        position += bytes;
      });
  return whole;
}

// In one call, so that all is of one process; and in this order, so that the bytes were valid when
// they were read.
bool PeerMemory::read_run(uint64_t from, Piece to, const Guard& guard) const {
  Token token{};
  uint64_t value = 0;
  const iovec local[] = {{to.data, to.size}, {token.data(), sizeof token}, {&value, sizeof value}};
  const iovec remote[] = {{reinterpret_cast<void*>(from), to.size},
                          {reinterpret_cast<void*>(token_address_), sizeof token},
                          {reinterpret_cast<void*>(guard.address), sizeof value}};
  const ssize_t read = process_vm_readv(pid_, local, 3, remote, 3, 0);
  return read == static_cast<ssize_t>(to.size + sizeof token + sizeof value) && token == token_ &&
         value == guard.value;
}

}  // namespace pacecar::fabric
