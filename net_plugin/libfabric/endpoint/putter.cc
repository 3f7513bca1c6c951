#include "net_plugin/libfabric/endpoint/putter.h"

namespace pacecar::fabric {

Result<void> Putter::finish_puts(Peer& peer) {
  if (peer.puts == nullptr) return {};
  return peer.puts->finish([this](uint64_t number) {
    Operation* const operation = state_.operations.find(number);
    if (operation == nullptr) return;
    --operation->outstanding_puts;
    state_.operations.end_if_done(*operation);
  });
}

void Putter::start_queued_puts(Peer& peer) {
  if (peer.puts == nullptr) {
    const bool first = !peer.queued_puts.empty() && peer.connecting_puts == nullptr;
    if (!first || !peer.outbox->is_open()) return;
    auto connecting = state_.domain.pacecar().connect(state_.domain.nic(), peer.remote_listener,
                                                      ConnectOptions{.puts = true});
    if (!connecting) return peer.cannot_send(connecting.error());
    peer.connecting_puts = std::move(*connecting);
    return;
  }
  while (!peer.is_lost() && !peer.queued_puts.empty() && peer.puts->has_room()) {
    Operation* const operation = state_.operations.find(peer.queued_puts.front());
    peer.queued_puts.pop_front();
    if (operation != nullptr) put_all(*operation);
  }
  if (auto started = peer.puts->start(); !started) peer.cannot_send(started.error());
}

// Issues the operation's puts into the peer's segments, followed by kPlaced or kDone.
void Putter::put_all(Operation& operation) {
  Peer& peer = *operation.peer;
  const size_t nic = peer.puts->nic();
  bool failed = false;
  pair_pieces(
      operation.local.count, [&](size_t i) { return operation.local.pieces[i].size; },
      operation.segment_count, [&](size_t j) { return operation.segments[j].length; },
      [&](size_t i, uint64_t from, size_t j, uint64_t to, uint64_t bytes) {
        const auto memory = state_.operations.memory_for(operation, i, nic);
        if (!memory) log_warning(memory.error().message);
        if (!memory || failed) {
          failed = true;
          return;
        }
        const RemoteSegment& segment = operation.segments[j];
        peer.puts->put({.data = operation.local.pieces[i].data + from,
                        .size = bytes,
                        .memory = *memory,
                        .window = {.address = segment.address + to,
                                   .length = bytes,
                                   .key = static_cast<uint32_t>(segment.key)},
                        .operation = operation.number});
        ++operation.outstanding_puts;
      });
  operation.puts_issued = true;
  if (failed) {
    return peer.fail(Failure::When::kNow, FI_ENOMEM,
                     "memory cannot be registered: see the log line before this one");
  }
  const bool reply = operation.kind == Operation::Kind::kServeRead;
  peer.puts->send_frame(
      {.kind = reply ? FrameKind::kDone : FrameKind::kPlaced, .id = operation.remote_id});
  state_.operations.end_if_done(operation);
}

}  // namespace pacecar::fabric
