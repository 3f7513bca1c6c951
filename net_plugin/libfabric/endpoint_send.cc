// What an endpoint asks of its peers.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {
namespace {

constexpr uint64_t kDelivered =
    FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

uint64_t completion_flags(const Asked& asked) {
  switch (asked.kind) {
    case FrameKind::kWrite:
      return FI_RMA | FI_WRITE;
    case FrameKind::kRead:
      return FI_RMA | FI_READ;
    case FrameKind::kAtomic:
      return FI_ATOMIC | (asked.fetches ? FI_READ : FI_WRITE);
    default:
      return FI_SEND | (asked.tagged ? FI_TAGGED : FI_MSG);
  }
}

uint64_t counted_as(const Asked& asked) {
  if (asked.kind == FrameKind::kMessage) return FI_SEND;
  return asked.kind == FrameKind::kRead || asked.fetches ? FI_READ : FI_WRITE;
}

}  // namespace

Endpoint::Outcome Endpoint::outcome_of(const Asked& asked) const {
  Outcome outcome;
  outcome.completion.context = asked.context;
  outcome.completion.flags = completion_flags(asked);
  outcome.completes = !asked.inject && (!tx_selective_ || (asked.flags & FI_COMPLETION) != 0);
  outcome.counts = counted_as(asked);
  return outcome;
}

ssize_t Endpoint::start(const Asked& asked) {
  if (!enabled()) return -FI_EOPBADSTATE;
  const auto number = peer_number(asked.to);
  if (!number) return -FI_EINVAL;
  Peer& peer = *peers_[*number];
  const auto full = [&] {
    return (tx_queue_ != nullptr && tx_queue_->waiting.full()) || sending_ >= tx_size_ ||
           operations_.full() || peer.waiting.size() >= tx_size_;
  };
  // Reads of that size are in order with what changes memory after them.
  const auto overtakes = [&] {
    return (asked.kind == FrameKind::kWrite || asked.kind == FrameKind::kAtomic) &&
           std::ranges::any_of(peer.to_ask, [&](uint64_t read) {
             return operations_.find(read)->length <= kEagerBytes;
           });
  };
  if (full() || overtakes()) domain_.progress();
  if (full() || overtakes()) return -FI_EAGAIN;
  call(peer);
  const bool copied = asked.kind == FrameKind::kAtomic ||
                      (asked.kind != FrameKind::kRead && asked.local.bytes() <= kEagerBytes);
  if (copied && (on_device(asked.local) || on_device(asked.comparands))) {
    return start_from_host(asked, *number);
  }
  switch (asked.kind) {
    case FrameKind::kRead:
      return start_read(asked, *number);
    case FrameKind::kAtomic:
      return start_atomic(asked, *number);
    default:
      return copied ? start_eagerly(asked, *number) : start_offered(asked, *number);
  }
}

// Of what a GPU has, a copy goes into the frame.
ssize_t Endpoint::start_from_host(const Asked& asked, PeerId number) {
  Asked copy = asked;
  const auto local = bounce_for(asked.local, asked.local.bytes(), true);
  const auto comparands = bounce_for(asked.comparands, asked.comparands.bytes(), true);
  for (const auto* made : {&local, &comparands}) {
    if (*made) continue;
    log_warning(made->error().message);
    return -FI_EIO;
  }
  const auto replace = [](Local& memory, const std::unique_ptr<Bounce>& bounce) {
    if (bounce == nullptr) return;
    memory = {};
    memory.pieces[0] = {bounce->host.data(), bounce->bytes};
    memory.count = 1;
  };
  replace(copy.local, *local);
  replace(copy.comparands, *comparands);
  return asked.kind == FrameKind::kAtomic ? start_atomic(copy, number)
                                          : start_eagerly(copy, number);
}

namespace {

Frame frame_of(const Asked& asked, FrameKind kind, size_t payload, uint64_t id) {
  Frame frame{.kind = kind,
              .payload = static_cast<uint32_t>(payload),
              .tag = asked.tag,
              .data = asked.data,
              .length = asked.local.bytes(),
              .id = id,
              .address = asked.address};
  if (asked.tagged) frame.flags |= kTagged;
  if (asked.has_data) frame.flags |= kHasData;
  if (asked.kind == FrameKind::kMessage && (asked.flags & kDelivered) != 0) {
    frame.flags |= kWantsDone;
  }
  return frame;
}

}  // namespace

ssize_t Endpoint::start_eagerly(const Asked& asked, PeerId number) {
  Peer& peer = *peers_[number];
  const size_t bytes = asked.local.bytes();
  if (!peer.outbox->has_room(bytes)) {
    domain_.progress();
    if (!peer.outbox->has_room(bytes)) return -FI_EAGAIN;
  }
  Outcome outcome = outcome_of(asked);
  const bool write = asked.kind == FrameKind::kWrite;
  const bool delivered = !asked.inject && (asked.flags & kDelivered) != 0;
  Operation* operation = nullptr;
  uint64_t id = 0;
  if (write || delivered) {
    std::tie(id, operation) = operations_.take();
    ++sending_;
    operation->kind = write ? Operation::Kind::kWrite : Operation::Kind::kDelivery;
    operation->peer = number;
    operation->outcome = outcome;
    operation->wants_done = true;
  }
  Frame frame = frame_of(asked, asked.kind, bytes, id);
  if (!delivered) frame.flags &= static_cast<uint8_t>(~kWantsDone);
  gather(asked.local.all(), peer.outbox->add(frame));
  if (operation == nullptr) settle(peer, std::move(outcome));
  start(number, (asked.flags & FI_MORE) != 0);
  return 0;
}

void Endpoint::start(PeerId number, bool patient) {
  const Outbox& outbox = *peers_[number]->outbox;
  if (const auto started = peers_[number]->outbox->start(patient); !started) {
    return fail_peer(number, fi_error(started.error().code), started.error().message);
  }
  if (outbox.holds()) domain_.owe();
}

// A copy is done when it will leave: with a connection, that is now.
void Endpoint::settle(Peer& peer, Outcome outcome) {
  if (peer.outbox->is_open()) return tell(outcome, tx_queue_);
  peer.waiting.push_back(std::move(outcome));
}

ssize_t Endpoint::start_offered(const Asked& asked, PeerId number) {
  Peer& peer = *peers_[number];
  if (!peer.outbox->has_room(0)) {
    domain_.progress();
    if (!peer.outbox->has_room(0)) return -FI_EAGAIN;
  }
  auto bounce = bounce_for(asked.local, asked.local.bytes(), true);
  if (!bounce) {
    log_warning(bounce.error().message);
    return -FI_EIO;
  }
  const auto [id, operation] = operations_.take();
  ++sending_;
  const bool write = asked.kind == FrameKind::kWrite;
  operation->kind = write ? Operation::Kind::kWrite : Operation::Kind::kOffer;
  operation->peer = number;
  operation->outcome = outcome_of(asked);
  operation->local = asked.local;
  go_through(*operation, std::move(*bounce));
  operation->length = asked.local.bytes();
  operation->wants_done = write || (asked.flags & kDelivered) != 0;
  peer.outbox->add(frame_of(asked, write ? FrameKind::kWriteOffer : FrameKind::kOffer, 0, id));
  start(number, false);
  return 0;
}

ssize_t Endpoint::start_read(const Asked& asked, PeerId number) {
  Peer& peer = *peers_[number];
  const auto [id, operation] = operations_.take();
  ++sending_;
  operation->kind = Operation::Kind::kRead;
  operation->peer = number;
  operation->outcome = outcome_of(asked);
  operation->local = asked.local;
  operation->length = asked.local.bytes();
  go_through(*operation, std::move(*bounce_for(asked.local, operation->length, false)));
  operation->wants_done = true;
  operation->asks = frame_of(asked, FrameKind::kRead, 0, id);
  peer.to_ask.push_back(id);
  try_reads(number);
  return 0;
}

// A large one wants the connection that comes from the peer: over it he puts.
void Endpoint::try_reads(PeerId number) {
  Peer& peer = *peers_[number];
  while (!peer.to_ask.empty() && peer.outbox->has_room(kMostPlaces * sizeof(PlaceFrame))) {
    const uint64_t id = peer.to_ask.front();
    Operation& operation = *operations_.find(id);
    Frame frame = operation.asks;
    if (operation.length > kEagerBytes) {
      if (peer.frames.inbox == nullptr) break;
      const auto places = describe_places(operation, peer.frames.inbox->nic(), operation.length);
      if (!places) {
        peer.to_ask.pop_front();
        end(id, FI_ENOMEM, "memory cannot be registered: see the line before");
        continue;
      }
      frame.payload = static_cast<uint32_t>(*places * sizeof(PlaceFrame));
    }
    peer.to_ask.pop_front();
    std::memcpy(peer.outbox->add(frame), operation.places.data(), frame.payload);
  }
  start(number, false);
}

ssize_t Endpoint::start_atomic(const Asked& asked, PeerId number) {
  Peer& peer = *peers_[number];
  const size_t operands = asked.local.bytes();
  const size_t payload = operands + asked.comparands.bytes();
  if (!peer.outbox->has_room(payload)) {
    domain_.progress();
    if (!peer.outbox->has_room(payload)) return -FI_EAGAIN;
  }
  const auto [id, operation] = operations_.take();
  ++sending_;
  operation->kind = Operation::Kind::kAtomic;
  operation->peer = number;
  operation->outcome = outcome_of(asked);
  operation->local = asked.results;
  operation->length = asked.results.bytes();
  go_through(*operation, std::move(*bounce_for(asked.results, operation->length, false)));
  operation->wants_done = true;
  Frame frame = frame_of(asked, FrameKind::kAtomic, payload, id);
  // A read has no operands: as many bytes as come back.
  if (operands == 0) frame.length = asked.results.bytes();
  frame.operation = asked.operation;
  frame.datatype = asked.datatype;
  if (asked.fetches) frame.flags |= kFetches;
  if (asked.compares) frame.flags |= kCompares;
  uint8_t* const place = peer.outbox->add(frame);
  gather(asked.local.all(), place);
  gather(asked.comparands.all(), place + operands);
  start(number, (asked.flags & FI_MORE) != 0);
  return 0;
}

// --- memory, and the puts into that of peers ---

// What was registered with libfabric serves, where Pacecar's NIC takes it; else it is registered
// for this operation.
Result<const Memory*> Endpoint::memory_for(Operation& operation, size_t piece, size_t nic) {
  const Piece& at = operation.local.pieces[piece];
  MemoryRegion* const region = operation.local.regions[piece];
  if (region != nullptr && at.data >= region->base &&
      at.size <= region->length - static_cast<uint64_t>(at.data - region->base)) {
    return region->on(nic);
  }
  operation.registered_nic = nic;
  if (operation.registered[piece] == nullptr) {
    auto memory = domain_.pacecar().register_memory(nic, at.data, at.size);
    if (!memory) return memory;
    operation.registered[piece] = *memory;
  }
  return operation.registered[piece];
}

// Fills the operation's places with the first `bytes` of its memory; returns how many. nullopt:
// they cannot be registered.
std::optional<size_t> Endpoint::describe_places(Operation& operation, size_t nic, uint64_t bytes) {
  size_t count = 0;
  for (size_t i = 0; i < operation.local.count && bytes > 0; ++i) {
    const Piece& piece = operation.local.pieces[i];
    const uint64_t part = std::min<uint64_t>(piece.size, bytes);
    if (part == 0) continue;
    const auto memory = memory_for(operation, i, nic);
    const auto window = memory ? window_of(**memory) : tl::unexpected(memory.error());
    if (!window) {
      log_warning(window.error().message);
      return std::nullopt;
    }
    const bool own = operation.registered[i] != nullptr;
    const auto offset =
        own ? 0 : static_cast<uint64_t>(piece.data - operation.local.regions[i]->base);
    operation.places[count++] = {window->address + offset, part, window->key};
    bytes -= part;
  }
  operation.place_count = count;
  return count;
}

void Endpoint::try_puts(PeerId number) {
  Peer& peer = *peers_[number];
  if (peer.puts == nullptr) {
    const bool first = !peer.to_put.empty() && peer.connecting_puts == nullptr;
    if (!first || !peer.outbox->is_open()) return;
    auto connecting =
        domain_.pacecar().connect(domain_.nic(), peer.his_listener, ConnectOptions{.puts = true});
    if (!connecting) {
      return fail_peer(number, fi_error(connecting.error().code), connecting.error().message);
    }
    peer.connecting_puts = std::move(*connecting);
    return;
  }
  while (peer.puts != nullptr && !peer.to_put.empty() && peer.puts->has_room()) {
    const uint64_t operation = peer.to_put.front();
    peer.to_put.pop_front();
    if (Operation* const at = operations_.find(operation)) put_all(peer, operation, *at);
  }
  if (peer.puts == nullptr) return;  // a put has failed
  if (auto started = peer.puts->start(); !started) {
    fail_peer(number, fi_error(started.error().code), started.error().message);
  }
}

// Into the peer's places, and says so.
void Endpoint::put_all(Peer& peer, uint64_t number, Operation& operation) {
  const size_t nic = peer.puts->nic();
  bool failed = false;
  pair_pieces(
      operation.local.count, [&](size_t i) { return operation.local.pieces[i].size; },
      operation.place_count, [&](size_t j) { return operation.places[j].length; },
      [&](size_t i, uint64_t from, size_t j, uint64_t to, uint64_t bytes) {
        const auto memory = memory_for(operation, i, nic);
        if (!memory) log_warning(memory.error().message);
        if (!memory || failed) {
          failed = true;
          return;
        }
        const PlaceFrame& place = operation.places[j];
        peer.puts->put({.data = operation.local.pieces[i].data + from,
                        .size = bytes,
                        .memory = *memory,
                        .window = {.address = place.address + to,
                                   .length = bytes,
                                   .key = static_cast<uint32_t>(place.key)},
                        .operation = number});
        ++operation.puts;
      });
  operation.put = true;
  if (failed) {
    const PeerId peer_number = operation.peer;
    return fail_peer(peer_number, FI_ENOMEM, "memory cannot be registered: see the line before");
  }
  if (operation.kind == Operation::Kind::kServeRead) {
    peer.puts->say({.kind = FrameKind::kDone, .id = operation.peers_number});
  } else {
    peer.puts->say({.kind = FrameKind::kPlaced, .id = operation.peers_number});
  }
  if (operation.puts == 0) on_put_done(number);
}

void Endpoint::on_put_done(uint64_t number) {
  Operation* const operation = operations_.find(number);
  if (operation == nullptr) return;
  if (operation->puts > 0) --operation->puts;
  end_if_done(number, *operation);
}

// The peer has all, and no repetition reads the memory any more.
void Endpoint::end_if_done(uint64_t number, const Operation& operation) {
  const bool puts = operation.kind == Operation::Kind::kOffer || operation.place_count > 0;
  const bool serves = operation.kind == Operation::Kind::kServeRead;
  if (operation.puts > 0 || operation.wants_done) return;
  if ((puts || serves) && operation.kind != Operation::Kind::kRead && !operation.put) return;
  end(number, 0, {});
}

// `error`: 0, or fi_errno.
void Endpoint::end(uint64_t number, int error, const std::string& why) {
  Operation& operation = *operations_.find(number);
  using Kind = Operation::Kind;
  const Kind kind = operation.kind;
  const bool came = kind == Kind::kReceive || operation.outcome.completion.error == 0;
  if (error == 0 && came) {
    if (const auto delivered = deliver(operation); !delivered) {
      operation.outcome.completion.error = FI_EIO;
      operation.outcome.completion.why = delivered.error().message;
    }
  }
  Outcome outcome = std::move(operation.outcome);
  const std::shared_ptr<SharedBuffer> shared = std::move(operation.shared);
  const bool serves = kind == Kind::kServeWrite || kind == Kind::kServeRead;
  if (!serves && kind != Kind::kReceive) --sending_;
  release(number, operation);
  if (serves) return;
  CompletionQueue* const queue = kind == Kind::kReceive ? rx_queue_ : tx_queue_;
  if (shared != nullptr && --shared->receiving == 0 && shared->spent) {
    outcome.completion.flags |= FI_MULTI_RECV;
  }
  if (error == 0) error = outcome.completion.error;  // a receive that was too short
  if (error != 0) {
    tell_error(outcome, queue, error, why.empty() ? outcome.completion.why : why);
  } else {
    tell(outcome, queue);
  }
}

void Endpoint::release(uint64_t number, Operation& operation) {
  using Kind = Operation::Kind;
  const bool serves = operation.kind == Kind::kServeWrite || operation.kind == Kind::kServeRead;
  if (serves) --peers_[operation.peer]->serving;
  for (const Memory* memory : operation.registered) {
    if (memory != nullptr) {
      (void)domain_.pacecar().deregister_memory(operation.registered_nic, memory);
    }
  }
  operation.bounce.reset();
  operations_.release(number);
}

}  // namespace pacecar::fabric
