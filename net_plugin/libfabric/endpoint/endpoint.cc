#include "net_plugin/libfabric/endpoint/endpoint.h"

#include <algorithm>

#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

// How long closing an endpoint waits for its frames and puts to be sent.
constexpr Duration kFlushTimeout = Duration::from_ms(1000);
// From the loss of a peer until it is failed: time to receive its earlier frames.
constexpr Duration kDrainTime = Duration::from_ms(500);
// A turn takes 50 ns, and 1 us with a poll of the NIC. So while frames come through shared memory,
// only every 32nd turn polls the NIC,
constexpr uint32_t kTurnsWithoutNic = 32;
// until no frame has come through it for this many turns.
constexpr uint32_t kSharedTurns = 1024;

}  // namespace

Endpoint::Endpoint(Domain& domain, const fi_info& info)
    : fid_ep{},
      caps_(info.caps),
      tx_(*info.tx_attr),
      rx_(*info.rx_attr),
      state_(domain),
      connector_(
          state_, [this](Peer& peer, const Failure& failure) { fail_peer(peer, failure); },
          [this](const Peer& peer) {
            return state_.operations.outstanding_with(peer) || receiver_.knows(peer);
          }),
      initiator_(state_, bulk_, tx_.size),
      receiver_(state_, bulk_, rx_.size) {
  const SocketAddress any{.v4 = {.sin_family = AF_INET}};
  const auto name = from_sockaddr(static_cast<const sockaddr*>(info.src_addr));
  wanted_name_ =
      name.value_or(info.addr_format == FI_SOCKADDR_IN6 ? Address() : from_sockaddr(any));
}

Endpoint::~Endpoint() {
  std::erase(domain().endpoints, this);
  state_.peers.revoke_tokens();  // before operations give their memory back
}

int Endpoint::bind(struct fid* other, uint64_t flags) {
  const std::lock_guard lock(domain().mutex);
  if (connector_.is_open()) return -FI_EOPBADSTATE;
  switch (other->fclass) {
    case FI_CLASS_AV: return state_.peers.bind(*reinterpret_cast<AddressVector*>(other));
    case FI_CLASS_EQ: return 0;  // an endpoint has no events
    case FI_CLASS_CQ:
      return state_.completions.bind(*reinterpret_cast<CompletionQueue*>(other), flags);
    case FI_CLASS_CNTR:
      state_.completions.bind(*reinterpret_cast<Counter*>(other), flags);
      return 0;
    default: return -FI_EINVAL;
  }
}

int Endpoint::enable() {
  const std::lock_guard lock(domain().mutex);
  if (connector_.is_open()) return 0;
  if (!state_.peers.has_vector()) return -FI_ENOAV;
  const bool completes =
      state_.completions.transmit().queue != nullptr || state_.completions.has_counters();
  if ((caps_ & FI_SEND) != 0 && !completes) return -FI_ENOCQ;
  if (const int result = connector_.open(wanted_name_); result != 0) return result;
  domain().endpoints.push_back(this);
  return 0;
}

int Endpoint::set_name(const void* address, size_t bytes) {
  const std::lock_guard lock(domain().mutex);
  if (connector_.is_open()) return -FI_EOPBADSTATE;
  const auto* const wanted = static_cast<const sockaddr*>(address);
  const bool whole = bytes >= sizeof(sockaddr_in6) ||
                     (bytes >= sizeof(sockaddr_in) && wanted->sa_family == AF_INET);
  const auto name = whole ? from_sockaddr(wanted) : std::nullopt;
  if (!name) return -FI_EINVAL;
  wanted_name_ = *name;
  return 0;
}

int Endpoint::get_name(void* address, size_t* bytes) const {
  const std::lock_guard lock(domain().mutex);
  if (!connector_.is_open()) return -FI_EOPBADSTATE;
  return copy_address(without_scope(connector_.name()), address, bytes) ? 0 : -FI_ETOOSMALL;
}

ssize_t Endpoint::cancel(void* context) {
  const std::lock_guard lock(domain().mutex);
  return receiver_.cancel(context);
}

ssize_t Endpoint::start(const OperationRequest& request) {
  if (!connector_.is_open()) return -FI_EOPBADSTATE;
  Peer* const peer = state_.peers.at(request.to);
  if (peer == nullptr) return -FI_EINVAL;
  if (!initiator_.make_room(request, *peer)) return -FI_EAGAIN;
  connector_.call(*peer);
  const ssize_t result = initiator_.start(request, *peer);
  connector_.call(*peer);  // for the case that a turn has failed the peer, to make room
  return result;
}

ssize_t Endpoint::receive(const ReceiveRequest& request) {
  if (!connector_.is_open()) return -FI_EOPBADSTATE;
  Pattern pattern{.tag = request.tag, .ignore = request.ignore};
  if (request.from != FI_ADDR_UNSPEC && (caps_ & FI_DIRECTED_RECV) != 0) {
    const Peer* const peer = state_.peers.at(request.from);
    if (peer == nullptr) return -FI_EINVAL;
    pattern.source = peer->number;
  }
  const uint64_t flags = request.receive.flags;
  if (request.tagged && (flags & FI_PEEK) != 0) return receiver_.peek(pattern, request.receive);
  if (request.tagged && (flags & (FI_CLAIM | FI_DISCARD)) != 0) {
    return receiver_.post_claimed(request.receive);
  }
  return receiver_.post(request.tagged, pattern, request.receive);
}

// --- progress ---

// Polls the NIC by one of the connections, which serves all.
void Endpoint::poll_nic() {
  if (shared_turns_ > 0) {
    --shared_turns_;
    if (++turns_without_nic_ < kTurnsWithoutNic) return;
  }
  turns_without_nic_ = 0;
  auto& peers = state_.peers.all();
  for (size_t i = 0; i < peers.size(); ++i) {
    Peer& peer = peers[next_to_poll_++ % peers.size()];
    if (peer.frames.source != nullptr && peer.frames.source->turn()) return;
  }
}

void Endpoint::progress() {
  poll_nic();
  connector_.progress();
  for (Peer& peer : state_.peers.all()) {
    const bool shared = peer.frames.source != nullptr && read_frames(peer, peer.shared);
    if (shared) shared_turns_ = kSharedTurns;
    read_frames(peer, peer.frames);
    read_frames(peer, peer.placed);
    if (peer.can_send()) send_to(peer);
  }
  fail_lost_peers();
}

void Endpoint::send_to(Peer& peer) {
  auto moved = peer.outbox->finish();
  if (moved) moved = bulk_.finish_puts(peer);
  if (moved) {
    bulk_.start_queued_puts(peer);
    initiator_.start_queued_reads(peer);
    bulk_.continue_direct_reads(peer);
    moved = peer.outbox->start(Outbox::Coming::kNothing);
  }
  if (!moved) peer.cannot_send(moved.error());
}

bool Endpoint::prepare_to_rest() {
  return std::ranges::all_of(state_.peers.all(), [](const Peer& peer) {
    const IncomingStream& shared = peer.shared;
    const bool waits = shared.reading.has_value();  // for room in a queue
    return peer.direct_reads.empty() &&
           (shared.source == nullptr || waits || shared.source->rest());
  });
}

bool Endpoint::owes_progress() const {
  return std::ranges::any_of(state_.peers.all(), [](const Peer& peer) {
    return !peer.sends_fail() && (peer.outbox->has_unsent_frames() || peer.connects_to_us());
  });
}

void Endpoint::flush() {
  std::unique_lock lock(domain().mutex);
  if (!connector_.is_open()) return;
  auto& peers = state_.peers.all();
  const Duration give_up = attended_.total() + kFlushTimeout;
  bool bye_sent = false;
  while (attended_.total() < give_up) {
    progress();
    const bool flushed = std::ranges::all_of(peers, &Peer::is_flushed);
    if (flushed && bye_sent) return;
    if (flushed) {
      bye_sent = true;
      for (Peer& peer : peers) {
        if (peer.can_send()) (void)peer.outbox->reply({.kind = FrameKind::kBye}, {});
      }
      continue;
    }
    lock.unlock();
    domain().pacecar().rest(domain().nic());
    lock.lock();
  }
  for (const Peer& peer : peers) {
    if (peer.is_flushed()) continue;
    log_warning(to_string(peer.name) +
                " has not received all that was sent to it; the rest is lost, as the endpoint is "
                "closed. Let the peer read its completions, or close later");
  }
}

// --- frames of peers: everything in them is checked; a protocol error fails the peer ---

bool Endpoint::read_frames(Peer& peer, IncomingStream& stream) {
  uint32_t messages = 0;
  while (messages < kMaxMessages && read_message(peer, stream)) ++messages;
  return messages > 0;
}

bool Endpoint::read_message(Peer& peer, IncomingStream& stream) {
  if (stream.source == nullptr || peer.is_lost()) return false;
  const auto lost = [&](int error, const std::string& why) {
    peer.fail(Failure::When::kNow, error, why);
    return false;
  };
  if (!stream.reading) {
    const auto message = stream.source->next();
    if (!message && (peer.has_closed() || peer.has_unread_frames())) return false;
    if (!message) return lost(fi_error(message.error().code), Error(message.error()).message);
    if (message->empty()) return false;
    stream.reading.emplace(*message);
  }
  while (true) {
    const FrameReader here = *stream.reading;
    const auto view = stream.reading->next();
    if (!view) break;
    const FrameResult taken = on_frame(peer, stream, *view);
    if (peer.is_lost()) return false;
    if (taken == FrameResult::kNoRoom) {
      stream.reading = here;
      return false;
    }
    if (taken == FrameResult::kProtocolError) {
      return lost(EPROTO, to_string(peer.name) +
                              " sent an invalid frame: run the same version of Pacecar on both "
                              "sides");
    }
  }
  if (!stream.reading->whole()) {
    return lost(EPROTO, to_string(peer.name) + " sent bytes that are no frame");
  }
  stream.reading.reset();
  const auto done = stream.source->done();
  return done ? true : lost(fi_error(done.error().code), done.error().message);
}

FrameResult Endpoint::on_frame(Peer& peer, const IncomingStream& stream, const FrameView& view) {
  const FrameKind kind = view.frame.kind;
  const bool behind_puts = kind == FrameKind::kPlaced || kind == FrameKind::kDone;
  if (&stream == &peer.placed && !behind_puts) return FrameResult::kProtocolError;
  switch (kind) {
    case FrameKind::kMessage:
    case FrameKind::kOffer: return receiver_.on_message(peer, view);
    case FrameKind::kWrite:
    case FrameKind::kWriteOffer:
    case FrameKind::kRead:
    case FrameKind::kAtomic: return target_.on_request(peer, view);
    case FrameKind::kClearToSend: return initiator_.on_clear_to_send(peer, view);
    case FrameKind::kPlaced: return bulk_.on_placed(peer, view.frame);
    case FrameKind::kDone: return initiator_.on_done(peer, view);
    case FrameKind::kBye:
      peer.fail(Failure::When::kClosed, FI_ENOTCONN,
                to_string(peer.name) + " has closed its endpoint");
      return FrameResult::kHandled;
    case FrameKind::kWake: return FrameResult::kHandled;
    case FrameKind::kHello: break;
  }
  return FrameResult::kProtocolError;
}

// --- failure of a peer ---

void Endpoint::fail_lost_peers() {
  const Duration turn = attended_.advance(clock_now());
  for (Peer& peer : state_.peers.all()) {
    if (!peer.failure) continue;
    // Time does not count while the peer's frames wait for the application to read completions, or
    // to post receives.
    const bool waits =
        (state_.completions.receive().full() || receiver_.is_full()) && peer.has_unread_frames();
    if (!waits) peer.failure->lasted = peer.failure->lasted + turn;
    // Frames on its other connections may still arrive.
    const bool complete = peer.has_closed() && !state_.operations.outstanding_with(peer);
    if (peer.is_lost() || complete || peer.failure->lasted > kDrainTime) {
      fail_peer(peer, Failure(*peer.failure));
    }
  }
}

void Endpoint::fail_peer(Peer& peer, const Failure& failure) {
  const bool closed = failure.when == Failure::When::kClosed;
  if (!closed) log_warning(failure.why);
  connector_.end_calls_of(peer);
  for (PendingCompletion& pending : state_.peers.reset(peer)) {
    pending.completion.fail(failure.error, failure.why);
    state_.completions.report(std::move(pending));
  }
  state_.operations.for_each([&](Operation& operation) {
    if (operation.peer == &peer) state_.operations.end(operation, failure.error, failure.why);
  });
  receiver_.forget_messages_of(peer);
  if (!closed) receiver_.fail_receives_from(peer, failure.error, failure.why);
}

}  // namespace pacecar::fabric
