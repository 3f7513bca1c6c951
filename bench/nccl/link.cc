#include "bench/nccl/link.h"

#include "bench/nccl/value_or_throw.h"

namespace pacecar::nccl {
namespace {

Ends connect(const Host& host, Board& board, size_t rank, size_t to) {
  const Listening listening = host.listen();
  board.handles[rank] = listening.handle;
  value_or_throw(board.barrier());
  HandleBytes next = board.handles[to];
  Ends ends;
  // Connect and accept are tried in turns: each rank's connect waits for the next rank's accept,
  // all around the ring.
  until(
      board, [&] { return host.try_both(next, listening.comm, &ends); }, [] { return false; });
  host.close_listen(listening.comm);
  return ends;
}

size_t further(const Board& board, size_t rank, size_t distance) {
  return (rank + distance) % static_cast<size_t>(board.ranks());
}

}  // namespace

Link::Link(const Host& host, Board& board, size_t rank, size_t distance, std::span<float> sent,
           std::span<float> received)
    : to(further(board, rank, distance)),
      from(further(board, rank, static_cast<size_t>(board.ranks()) - distance)),
      ends(connect(host, board, rank, to)),
      send_memory(host, ends.send, bytes_of(sent)),
      receive_memory(host, ends.receive, bytes_of(received)) {}

void Link::close(const Host& host) {
  send_memory.deregister();
  receive_memory.deregister();
  host.close(ends);
}

}  // namespace pacecar::nccl
