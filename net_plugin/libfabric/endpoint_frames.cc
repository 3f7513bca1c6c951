// What peers say, and what is done about it. All of it is checked: nonsense ends the peer.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint.h"
#include "net_plugin/libfabric/link/socket_name.h"

namespace pacecar::fabric {
namespace {

int error_of(uint64_t status) {
  switch (static_cast<Status>(status)) {
    case Status::kOk:
      return 0;
    case Status::kNoKey:
      return FI_ENOKEY;
    case Status::kNoAccess:
      return FI_EACCES;
    case Status::kNonsense:
      return FI_EOPNOTSUPP;
  }
  return FI_EIO;
}

}  // namespace

void Endpoint::read_frames(PeerId number, Lane& lane) {
  Peer& peer = *peers_[number];
  while (lane.inbox != nullptr) {
    if (!lane.reading) {
      const auto message = lane.inbox->next();
      if (!message) {
        const Error why = message.error();
        return fail_peer(number, fi_error(why.code), why.message);
      }
      if (message->empty()) return;
      lane.reading.emplace(*message);
    }
    while (true) {
      const FrameReader here = *lane.reading;
      const auto view = lane.reading->next();
      if (!view) break;
      const Taken taken = on_frame(number, lane, *view);
      if (lane.inbox == nullptr) return;  // the frame has ended it
      if (taken == Taken::kLater) {
        lane.reading = here;
        return;
      }
      if (taken == Taken::kNonsense) {
        return fail_peer(number, EPROTO,
                         name_text(peer.name) +
                             " sent what makes no sense: run the same version "
                             "of Pacecar on both sides");
      }
    }
    if (!lane.reading->whole()) {
      return fail_peer(number, EPROTO, name_text(peer.name) + " sent what is no frame");
    }
    lane.reading.reset();
    if (const auto done = lane.inbox->done(); !done) {
      return fail_peer(number, fi_error(done.error().code), done.error().message);
    }
  }
}

Endpoint::Taken Endpoint::on_frame(PeerId number, const Lane& lane, const FrameView& view) {
  const FrameKind kind = view.frame.kind;
  const bool behind_puts = kind == FrameKind::kPlaced || kind == FrameKind::kDone;
  if (&lane == &peers_[number]->placed && !behind_puts) return Taken::kNonsense;
  switch (kind) {
    case FrameKind::kMessage:
    case FrameKind::kOffer:
      return on_message(number, view);
    case FrameKind::kWrite:
      return on_write(number, view);
    case FrameKind::kWriteOffer:
      return on_write_offer(number, view.frame);
    case FrameKind::kRead:
      return on_read(number, view);
    case FrameKind::kAtomic:
      return on_atomic(number, view);
    case FrameKind::kClear:
      return on_clear(number, view);
    case FrameKind::kPlaced:
      return on_placed(number, view.frame);
    case FrameKind::kDone:
      return on_done(number, view);
    case FrameKind::kBye:
      peers_[number]->left = true;
      fail_peer(number, FI_ENOTCONN, name_text(peers_[number]->name) + " has closed its endpoint");
      return Taken::kYes;
    case FrameKind::kHello:
      break;
  }
  return Taken::kNonsense;
}

void Endpoint::answer(PeerId number, const Frame& given, std::span<const uint8_t> payload) {
  Peer& peer = *peers_[number];
  Frame frame = given;
  frame.payload = static_cast<uint32_t>(payload.size());
  if (!peer.outbox->answer(frame, payload)) {
    return fail_peer(number, EPROTO, name_text(peer.name) + " asks, and takes no answers");
  }
  start(number, true);
}

void Endpoint::answer_status(PeerId number, uint64_t id, Status status) {
  answer(number, {.kind = FrameKind::kDone, .data = static_cast<uint64_t>(status), .id = id});
}

// --- memory that peers write and read ---

Endpoint::Target Endpoint::target_of(const Frame& frame, uint64_t access) const {
  const auto at = domain_.regions.find(frame.tag);
  if (at == domain_.regions.end()) return {.status = Status::kNoKey};
  MemoryRegion& region = *at->second;
  uint8_t* const bytes = region.find(frame.address, frame.length);
  if (bytes == nullptr || (region.access & access) == 0) return {.status = Status::kNoAccess};
  Target target;
  target.memory.pieces[0] = {bytes, frame.length};
  target.memory.regions[0] = &region;
  target.memory.count = 1;
  return target;
}

void Endpoint::on_changed(MemoryRegion& region, const Frame& frame, PeerId from, uint64_t kind) {
  count(FI_REMOTE_WRITE, false);
  if (region.counter != nullptr) region.counter->count(false);
  if ((frame.flags & kHasData) == 0 || rx_queue_ == nullptr) return;
  Completion completion;
  completion.flags = kind | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  completion.length = frame.length;
  completion.data = frame.data;
  completion.source = source_of(*peers_[from]);
  rx_queue_->add(std::move(completion));
}

bool Endpoint::waits_for_room(PeerId number, const Frame& frame) const {
  return operations_.full() || peers_[number]->serving == kMostServed ||
         ((frame.flags & kHasData) != 0 && receives_full());
}

std::pair<uint64_t, Endpoint::Operation*> Endpoint::serve(PeerId number, Operation::Kind kind,
                                                          const Local& memory) {
  auto bounce = bounce_for(memory, memory.bytes(), kind == Operation::Kind::kServeRead);
  if (!bounce) {
    log_warning(bounce.error().message);
    return {0, nullptr};
  }
  const auto [id, operation] = operations_.take();
  ++peers_[number]->serving;
  operation->kind = kind;
  operation->peer = number;
  operation->local = memory;
  go_through(*operation, std::move(*bounce));
  return {id, operation};
}

Endpoint::Taken Endpoint::on_write(PeerId number, const FrameView& view) {
  if (view.frame.length != view.payload.size()) return Taken::kNonsense;
  if (waits_for_room(number, view.frame)) return Taken::kLater;
  Target target = target_of(view.frame, FI_REMOTE_WRITE);
  if (target.status == Status::kOk) {
    if (const auto copied = take_in(target.memory, view.payload)) {
      on_changed(target.region(), view.frame, number, FI_RMA);
    } else {
      log_warning(copied.error().message);
      target.status = Status::kNoAccess;
    }
  }
  answer_status(number, view.frame.id, target.status);
  return Taken::kYes;
}

Endpoint::Taken Endpoint::on_write_offer(PeerId number, const Frame& frame) {
  if (waits_for_room(number, frame)) return Taken::kLater;
  const Target target = target_of(frame, FI_REMOTE_WRITE);
  if (target.status != Status::kOk) {
    answer_status(number, frame.id, target.status);
    return Taken::kYes;
  }
  const auto [id, operation] = serve(number, Operation::Kind::kServeWrite, target.memory);
  if (operation == nullptr) {
    answer_status(number, frame.id, Status::kNoAccess);
    return Taken::kYes;
  }
  operation->asks = frame;
  operation->length = frame.length;
  if (!describe_places(*operation, peers_[number]->frames.inbox->nic(), frame.length)) {
    release(id, *operation);
    answer_status(number, frame.id, Status::kNoAccess);
    return Taken::kYes;
  }
  const auto* const place = reinterpret_cast<const uint8_t*>(operation->places.data());
  answer(number, {.kind = FrameKind::kClear, .length = frame.length, .id = frame.id, .address = id},
         {place, sizeof(PlaceFrame)});
  return Taken::kYes;
}

Endpoint::Taken Endpoint::on_read(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  const size_t places = view.payload.size() / sizeof(PlaceFrame);
  const bool large = frame.length > kEagerBytes;
  const bool sound = view.payload.size() % sizeof(PlaceFrame) == 0 && places <= kMostPlaces &&
                     large == (places > 0);
  if (!sound) return Taken::kNonsense;
  if (waits_for_room(number, frame)) return Taken::kLater;
  const Target target = target_of(frame, FI_REMOTE_READ);
  if (target.status != Status::kOk) {
    answer_status(number, frame.id, target.status);
    return Taken::kYes;
  }
  if (!large) {
    auto copy = bounce_for(target.memory, frame.length, true);
    if (!copy) {
      log_warning(copy.error().message);
      answer_status(number, frame.id, Status::kNoAccess);
      return Taken::kYes;
    }
    const uint8_t* const bytes =
        *copy != nullptr ? (*copy)->host.data() : target.memory.pieces[0].data;
    count(FI_REMOTE_READ, false);
    answer(number, {.kind = FrameKind::kDone, .id = frame.id}, {bytes, frame.length});
    return Taken::kYes;
  }
  const auto [id, operation] = serve(number, Operation::Kind::kServeRead, target.memory);
  if (operation == nullptr) {
    answer_status(number, frame.id, Status::kNoAccess);
    return Taken::kYes;
  }
  count(FI_REMOTE_READ, false);
  operation->peers_number = frame.id;
  operation->place_count = places;
  std::memcpy(operation->places.data(), view.payload.data(), view.payload.size());
  peers_[number]->to_put.push_back(id);
  return Taken::kYes;
}

Endpoint::Taken Endpoint::on_atomic(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  const bool compares = (frame.flags & kCompares) != 0;
  const bool fetches = (frame.flags & kFetches) != 0;
  const bool reads = frame.operation == static_cast<uint8_t>(AtomicOp::kRead);
  const size_t element = datatype_bytes(frame.datatype);
  const bool valid = atomic_valid(frame.operation, frame.datatype, fetches, compares) &&
                     frame.length <= kAtomicBytes && frame.length % element == 0;
  const uint64_t operands = valid && !reads ? frame.length : 0;
  const bool whole = view.payload.size() == (compares ? 2 * operands : operands);
  if (waits_for_room(number, frame)) return Taken::kLater;
  const Target target =
      target_of(frame, (reads ? 0 : FI_REMOTE_WRITE) | (reads ? FI_REMOTE_READ : 0));
  Status status = !valid || !whole ? Status::kNonsense : target.status;
  std::array<uint8_t, kAtomicBytes> result;
  if (status == Status::kOk) {
    const uint8_t* const first = reads ? nullptr : view.payload.data();
    const auto changed = change(target.memory, [&](uint8_t* at) {
      apply_atomic(frame.operation, frame.datatype, frame.length / element, at, first,
                   compares ? first + operands : nullptr, fetches ? result.data() : nullptr);
    });
    if (!changed) {
      log_warning(changed.error().message);
      status = Status::kNoAccess;
    }
  }
  if (status != Status::kOk) {
    answer_status(number, frame.id, status);
    return Taken::kYes;
  }
  if (reads) {
    count(FI_REMOTE_READ, false);
  } else {
    on_changed(target.region(), frame, number, FI_ATOMIC);
  }
  answer(number, {.kind = FrameKind::kDone, .id = frame.id},
         {result.data(), fetches ? frame.length : 0});
  return Taken::kYes;
}

// --- answers ---

Endpoint::Taken Endpoint::on_clear(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  Operation* const operation = operations_.find(frame.id);
  const size_t places = view.payload.size() / sizeof(PlaceFrame);
  const bool asked =
      operation != nullptr && operation->peer == number && !operation->cleared &&
      operation->length > kEagerBytes &&
      (operation->kind == Operation::Kind::kOffer || operation->kind == Operation::Kind::kWrite);
  const bool sound = asked && view.payload.size() == places * sizeof(PlaceFrame) &&
                     places <= kMostPlaces && frame.length <= operation->length;
  if (!sound) return Taken::kNonsense;
  std::memcpy(operation->places.data(), view.payload.data(), view.payload.size());
  uint64_t room = 0;
  for (size_t i = 0; i < places; ++i) {
    if (operation->places[i].length > frame.length - room) return Taken::kNonsense;
    room += operation->places[i].length;
  }
  if (room != frame.length) return Taken::kNonsense;
  operation->cleared = true;
  operation->place_count = places;
  operation->peers_number = frame.address;
  operation->outcome.completion.length = frame.length;
  peers_[number]->to_put.push_back(frame.id);
  try_puts(number);
  return Taken::kYes;
}

Endpoint::Taken Endpoint::on_placed(PeerId number, const Frame& frame) {
  Operation* const operation = operations_.find(frame.id);
  const bool cleared = operation != nullptr && operation->peer == number &&
                       (operation->kind == Operation::Kind::kReceive ||
                        operation->kind == Operation::Kind::kServeWrite);
  if (!cleared) return Taken::kNonsense;
  const Frame offer = operation->asks;
  const bool write = operation->kind == Operation::Kind::kServeWrite;
  Status status = Status::kOk;
  if (write) {
    const auto delivered = deliver(*operation);
    // The application may have closed the memory's registration meanwhile.
    const Target target = target_of(offer, FI_REMOTE_WRITE);
    if (!delivered) {
      log_warning(delivered.error().message);
      status = Status::kNoAccess;
    } else if (target.status == Status::kOk) {
      on_changed(target.region(), offer, number, FI_RMA);
    }
  }
  end(frame.id, 0, {});
  if (write || (offer.flags & kWantsDone) != 0) answer_status(number, offer.id, status);
  return Taken::kYes;
}

Endpoint::Taken Endpoint::on_done(PeerId number, const FrameView& view) {
  const uint64_t id = view.frame.id;
  Operation* const operation = operations_.find(id);
  const bool asked = operation != nullptr && operation->peer == number && operation->wants_done;
  if (!asked) return Taken::kNonsense;
  const int error = error_of(view.frame.data);
  const bool reads =
      operation->kind == Operation::Kind::kRead || operation->kind == Operation::Kind::kAtomic;
  const bool eager = operation->length <= kEagerBytes;
  if (error == 0 && reads && eager) {
    if (view.payload.size() != operation->length) return Taken::kNonsense;
    scatter(view.payload, operation->local.all());
  }
  operation->wants_done = false;
  if (error != 0) {
    operation->outcome.completion.error = error;
    operation->outcome.completion.why = "the peer refuses: look at key, bounds and access";
  }
  if (error != 0 && operation->puts == 0) {
    end(id, 0, {});
  } else {
    end_if_done(id, *operation);
  }
  return Taken::kYes;
}

}  // namespace pacecar::fabric
