// The state behind Messenger: flows and the two kinds of connection ends.
#pragma once

#include <string>

#include "transport/message/flow_connections.h"
#include "transport/message/messenger.h"

namespace pacecar {

// A work request's id: to what its completion belongs.
struct WorkId {
  enum class Kind : uint8_t { kData, kSlots, kWord, kClose, kNote, kWant };
  Kind kind = Kind::kData;
  uint32_t owner = 0;   // connection or flow
  uint32_t number = 0;  // kData: of the send

  uint64_t pack() const {
    return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(owner) << 24 | number;
  }
  static WorkId unpack(uint64_t id) {
    return {static_cast<Kind>(id >> 56), static_cast<uint32_t>(id >> 24 & 0xFFFFFFFF),
            static_cast<uint32_t>(id & 0xFFFFFF)};
  }
};

// Registers a place for the peer's writes.
template <typename T>
Result<MemoryRegion> expose(Nic& nic, T& place, size_t size = sizeof(T)) {
  return nic.register_memory(&place, size, Access::kRemoteWrite);
}

// A write from our table of a connection into the peer's table.
inline WorkRequest table_write(const WorkId& id, const void* from, Bytes length,
                               const MemoryRegion& own, const RemoteAddress& table, size_t offset) {
  return {.id = id.pack(),
          .local = static_cast<const uint8_t*>(from),
          .remote = table.address + offset,
          .length = length,
          .local_key = own.key,
          .remote_key = table.key,
          .host = true};
}

struct Messenger::Flow {
  using State = FlowState;

  FlowId id = 0;
  bool sending = false;
  State state = State::kJoining;
  NicIdentity peer{};
  uint64_t number = 0;
  QueuePairId data = 0;
  QueuePairId control = 0;
  FlowEnd local;
  FlowEnd remote;
  MemoryRegion word_region;        // of the peer's word
  uint32_t words_outstanding = 0;  // our word writes at the NIC
  uint64_t word_posted = 0;        // the newest of them
  FlowConnections numbered;
  uint32_t connections = 0;  // also those whose number has been reused
  bool active = false;       // a request is pending: the peer must be alive
  bool obeys = false;        // receiving: the sender takes our allocator's grants
  bool doubted = false;      // sending: no further connection shares it
  bool undecided = false;    // sending: something has changed since its limits were decided
  uint32_t weight = 1;       // the largest of its connections'
  uint32_t writes = 0;       // sending: at the NIC
  FlowStats stats;
  Instant last_word;
  Instant leave_at;
  Duration rtt;
  Decision decision;
  Controller* controller = nullptr;  // sending
  std::string peer_address;          // for people
  std::string fault;                 // what broke it, as text
  LimitMeter limits;                 // sending
};

// Whether the requests of a connection make progress.
struct Messenger::Progress {
  uint64_t moves = 0;
  Instant since;       // nothing has moved since
  bool waits = false;  // a request is pending
  bool stalled = false;
};

struct Messenger::Sender {
  explicit Sender(bool strict) : queue(strict) {}

  ConnectionId id = 0;
  Flow* flow = nullptr;
  uint32_t weight = 1;
  SendQueue queue;
  SendTable* table = nullptr;
  MemoryRegion table_region;
  uint32_t eager = 0;          // bytes of the largest eager message that was offered
  uint32_t number = 0;         // in the flow
  RemoteAddress remote_table;  // the peer's ReceiveTable
  uint32_t notes_outstanding = 0;
  uint64_t notes_done = 0;
  uint64_t wanted = 0;  // slots asked for by the wanted word
  MessageFailure failure = MessageFailure::kNone;
  Progress progress;
  bool shares = false;  // uses a flow that another connection made
  bool open = false;    // the answer has arrived
  bool held = false;
  bool closed = false;   // by the application
  bool lingers = false;  // closed; copies of sends that are done for the application are
                         // outstanding
  bool close_sent = false;
  bool peer_closed = false;
  bool close_outstanding = false;
};

struct Messenger::Receiver {
  explicit Receiver(bool strict) : queue(strict) {}

  ConnectionId id = 0;
  Flow* flow = nullptr;
  uint32_t number = 0;   // in the flow
  uint64_t offered = 0;  // Offer::count
  uint32_t weight = 1;
  ReceiveQueue queue;
  ReceiveTable* table = nullptr;
  MemoryRegion table_region;
  RemoteAddress remote_table;  // the peer's SendTable
  MessageFailure failure = MessageFailure::kNone;
  Progress progress;
  uint32_t slot_writes_outstanding = 0;
  uint64_t slot_writes_done = 0;
  uint32_t notes_outstanding = 0;
  uint64_t notes_done = 0;
  Instant advertise_at = Instant::never();  // at the latest; never: no unadvertised slot
  uint64_t completed_slots = 0;             // sent in our close word
  Instant close_due = Instant::never();     // of the wait for completions after peer_close
  bool closed = false;
  bool close_sent = false;
  bool peer_closed = false;
  bool close_outstanding = false;
};

}  // namespace pacecar
