#include "net_plugin/verbs/cm/agent.h"

#include <algorithm>
#include <cstring>

#include "net_plugin/verbs/cm/ids.h"
#include "transport/base/check.h"
#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/wire/roce.h"

namespace pacecar::ibverbs::cm {
namespace {

constexpr uint32_t kReceives = 256;
constexpr size_t kBufferBytes = roce::kGrhBytes + kMadBytes;
// How long other processes of an address may answer after the first one has refused the service.
constexpr Duration kSearch = Duration::from_s(2);  // on a busy host
// Shortest time between two deadlines, as each one visits all ends.
constexpr Duration kLeastPause = Duration::from_ms(10);

bool refuses_service(const Message& message) {
  return (message.kind == Kind::kReject && message.rejected == Kind::kRequest &&
          message.reason == kInvalidService) ||
         (message.kind == Kind::kFound && message.status == kServiceUnsupported);
}

}  // namespace

Result<std::unique_ptr<Agent>> Agent::open(CmDevice& device) {
  Nic& nic = device.nic().nic();
  auto buffers = std::make_unique<uint8_t[]>(kReceives * kBufferBytes);
  ASSIGN_OR_RETURN(const auto region, nic.register_memory(buffers.get(), kReceives * kBufferBytes,
                                                          Access::kLocalWrite));
  // Room for a message of each connection, as many have the same deadline, and for a search.
  const uint32_t sends = nic.caps().queue_pairs + roce::kSlots;
  const auto id = nic.create_queue_pair({.work_requests = sends,
                                         .receives = kReceives,
                                         .service = Service::kDatagram,
                                         .general_services = true});
  if (!id) {
    nic.deregister_memory(region);
    return tl::unexpected(id.error());
  }
  return std::unique_ptr<Agent>(new Agent(device, *id, std::move(buffers), region));
}

Agent::Agent(CmDevice& device, QueuePairId id, std::unique_ptr<uint8_t[]> buffers,
             const MemoryRegion& region)
    : device_(device), nic_(device.nic()), id_(id), buffers_(std::move(buffers)), region_(region) {
  next_transaction_ = uint64_t{new_id()} << 32;
  nic_.add_sink(id_, this);
  nic_.add_timed(this);
  nic_.nic().open_datagrams(id_, kGeneralServicesKey);
  for (uint32_t slot = 0; slot < kReceives; ++slot) post_receive(slot);
}

void Agent::post_receive(uint32_t slot) {
  const ReceiveRequest request{.id = slot,
                               .local = buffers_.get() + slot * kBufferBytes,
                               .length = kBufferBytes,
                               .local_key = region_.key};
  PACECAR_CHECK(nic_.nic().post_receives(id_, {&request, 1}) == 1);
}

// Random, so only readers of a connection's messages can end it.
uint32_t Agent::new_id() {
  uint32_t id = 0;
  do id = random_word();
  while (id == 0 || ends_.contains(id));
  return id;
}

void Agent::add(End& end) {
  ends_[end.connection.local_id()] = &end;
  if (end.connection.state() == Connection::State::kRequested) {
    requested_[{end.peer.gid, end.peer.slot, end.connection.remote_id()}] =
        end.connection.local_id();
  }
}

void Agent::remove(End& end) {
  ends_.erase(end.connection.local_id());
  const auto requested = requested_.find({end.peer.gid, end.peer.slot, end.connection.remote_id()});
  if (requested != requested_.end() && requested->second == end.connection.local_id()) {
    requested_.erase(requested);
  }
}

// --- closing ---

void Agent::disconnect(End& end) {
  const auto state = end.connection.state();
  if (state != Connection::State::kEstablished && state != Connection::State::kReplying) return;
  send(end, end.connection.disconnect(new_transaction(), clock_now()));
}

void Agent::abandon(std::unique_ptr<End> end) {
  disconnect(*end);
  if (end->connection.state() != Connection::State::kDisconnecting) return remove(*end);
  const uint32_t number = end->connection.local_id();
  abandoned_[number] = std::move(end);
}

void Agent::disconnect_all() {
  for (const auto& [number, end] : ends_) disconnect(*end);
}

bool Agent::all_disconnected() const {
  return std::ranges::none_of(ends_, [](const auto& entry) {
    return entry.second->connection.state() == Connection::State::kDisconnecting;
  });
}

// --- out ---

void Agent::send(End& end, const Message* message) {
  if (message != nullptr) send_to(end.peer, *message);
  due_ = std::min(due_, end.connection.due());
}

bool Agent::send_to(const Peer& peer, const Message& message) {
  const Staging staging = nic_.staging().take(kMadBytes);
  if (staging.data == nullptr) return false;
  std::ranges::copy(encode(message), staging.data);
  const Datagram datagram{.send = {.id = next_send_,
                                   .local = staging.data,
                                   .length = kMadBytes,
                                   .local_key = staging.key,
                                   .opcode = Opcode::kSend},
                          .gid = peer.gid,
                          .queue_pair = roce::general_services_of(peer.slot),
                          .queue_key = kGeneralServicesKey};
  if (nic_.nic().post_datagrams(id_, {&datagram, 1}) != 1) {
    nic_.staging().give_back(staging);
    return false;
  }
  sending_[next_send_++] = staging;
  return true;
}

void Agent::send_to_all(End& end) {
  end.sent_to_all = true;
  const Message* const request = end.connection.newest();
  for (uint32_t slot = 0; slot < roce::kSlots; ++slot) {
    end.sent_to_all &= send_to({end.peer.gid, slot}, *request);
  }
  if (end.sent_to_all) end.search_ends = std::min(end.search_ends, clock_now() + kSearch);
}

// --- in ---

void Agent::on_completion(const Completion& completion) {
  if (completion.kind == CompletionKind::kSent) {
    const auto sent = sending_.find(completion.work_request);
    nic_.staging().give_back(sent->second);
    sending_.erase(sent);
    return;
  }
  if (completion.kind != CompletionKind::kReceivedSend) return;
  const auto slot = static_cast<uint32_t>(completion.work_request);
  const uint8_t* const buffer = buffers_.get() + slot * kBufferBytes;
  ibv_grh grh;
  std::memcpy(&grh, buffer, sizeof grh);
  const auto message = decode({buffer + roce::kGrhBytes, completion.bytes - roce::kGrhBytes});
  const Peer from{.gid = sender_of(grh), .slot = completion.source_qp >> roce::kSlotShift};
  post_receive(slot);
  if (message) take(*message, from);
}

void Agent::take(const Message& message, const Peer& from) {
  const bool asks = message.kind == Kind::kRequest || message.kind == Kind::kFind;
  if (asks) return on_request(message, from);
  const uint32_t number = message.kind == Kind::kFound ? message.local_id : message.remote_id;
  const auto found = ends_.find(number);
  const bool known = found != ends_.end() && found->second->peer.gid == from.gid;
  if (!known) return on_unknown(message, from);
  End& end = *found->second;
  if (end.searching) {
    if (continue_search(end, message)) return;
    end.searching = false;
    end.peer.slot = from.slot;
  }
  const uint32_t remote = end.connection.remote_id();
  const bool same_end = remote == 0 || message.local_id == remote || message.kind == Kind::kFound;
  if (from.slot != end.peer.slot || !same_end) return;
  run(end, end.connection.on_message(message, clock_now()), message);
}

// For an end that is gone: lets the peer's end close as well.
void Agent::on_unknown(const Message& message, const Peer& from) {
  const bool replies = message.kind == Kind::kReply;
  if (!replies && message.kind != Kind::kDisconnect) return;
  send_to(from, {.kind = replies ? Kind::kReject : Kind::kDisconnected,
                 .transaction = message.transaction,
                 .local_id = message.remote_id,
                 .remote_id = message.local_id,
                 .reason = replies ? kUnknownNumber : uint16_t{0},
                 .rejected = Kind::kReply});
}

// True if the process refuses the service: another process may still accept.
bool Agent::continue_search(End& end, const Message& message) {
  if (!refuses_service(message)) return false;
  if (!end.refusal) due_ = Instant();  // on_due() asks the others, and ends the search
  end.refusal = message;
  return true;
}

void Agent::on_request(const Message& request, const Peer& from) {
  const auto again = requested_.find({from.gid, from.slot, request.local_id});
  if (again != requested_.end()) {
    End& end = *ends_.at(again->second);
    return run(end, end.connection.on_message(request, clock_now()), request);
  }
  uint16_t reason = 0;
  if (device_.on_request(request, from, &reason) != nullptr) return;
  const bool busy = reason == 0;  // the peer repeats its request, and asks no other process
  if (busy && request.kind == Kind::kFind) return;
  Message answer{.kind = busy ? Kind::kReceipt : Kind::kReject,
                 .transaction = request.transaction,
                 .remote_id = request.local_id,
                 .reason = reason};
  if (request.kind == Kind::kFind) {
    answer = {.kind = Kind::kFound,
              .transaction = request.transaction,
              .local_id = request.local_id,
              .service = request.service,
              .status = reason == kInvalidService ? kServiceUnsupported : kServiceRejected};
  }
  send_to(from, answer);
}

void Agent::run(End& end, const Connection::Step& step, const Message& message) {
  send(end, step.send);
  if (step.notice == Notice::kNothing) return;
  end.on_notice(step.notice, message);
  if (step.notice != Notice::kDisconnected) return;
  const auto abandoned = abandoned_.find(end.connection.local_id());
  if (abandoned == abandoned_.end()) return;
  remove(end);
  abandoned_.erase(abandoned);
}

// --- time ---

void Agent::on_due(Instant now) {
  std::vector<uint32_t> numbers;
  for (const auto& [number, end] : ends_) numbers.push_back(number);
  for (const uint32_t number : numbers) {
    const auto end = ends_.find(number);  // an end may have removed another
    if (end != ends_.end()) on_end_due(*end->second, now);
  }
  due_ = Instant::never();
  for (const auto& [number, end] : ends_) {
    due_ = std::min(due_, end->connection.due());
    if (!end->searching || !end->refusal) continue;
    due_ = std::min(due_, end->sent_to_all ? end->search_ends : now);
  }
  due_ = std::max(due_, now + kLeastPause);
}

void Agent::on_end_due(End& end, Instant now) {
  const bool refused = end.searching && end.refusal;
  if (refused && !end.sent_to_all) send_to_all(end);
  if (refused && now >= end.search_ends) {
    end.searching = false;
    return run(end, end.connection.on_message(*end.refusal, now), *end.refusal);
  }
  const Connection::Step step = end.connection.on_time(now);
  if (end.searching && step.send != nullptr) {
    send_to_all(end);
  } else {
    run(end, step, Message());
  }
}

}  // namespace pacecar::ibverbs::cm
