// Connecting to peers, identifying their connections, and the failure of a peer.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"
#include "transport/base/random_word.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {

// Interval of polling the TCP sockets. While a peer is connecting they are polled in every turn.
constexpr auto kPollInterval = std::chrono::microseconds(200);
// From the loss of a peer until it is failed: time to receive what it sent before.
constexpr auto kDrainTime = std::chrono::milliseconds(500);
// For a connection's kHello, which takes a round trip, while further connections wait.
constexpr auto kHelloTime = std::chrono::milliseconds(100);

Peer& Endpoint::peer_named(const Address& name) {
  const auto known = peers_by_name_.find(name);
  if (known != peers_by_name_.end()) return *known->second;
  auto made = std::make_unique<Peer>();
  made->number = static_cast<PeerId>(peers_.size());
  made->name = name;
  reset(*made);  // without memory for it the peer is none of peers_
  Peer& peer = *peers_.emplace_back(std::move(made));
  peers_by_name_.emplace(name, &peer);
  return peer;
}

// From now on the peer has no connections, and reads none of our memory, because the token is new.
// Returns the completions that it held. Without memory nothing changes.
std::deque<PendingCompletion> Endpoint::reset(Peer& peer) {
  Peer fresh{.number = peer.number, .name = peer.name, .other_name = peer.other_name};
  fresh.token = {random_u64(), random_u64()};
  fresh.outbox = std::make_unique<Outbox>(domain_.context_of_process());
  fresh.serving = peer.serving;
  auto held = std::move(peer.held_completions);
  peer = std::move(fresh);
  return held;
}

std::optional<PeerId> Endpoint::peer_number(fi_addr_t address) {
  if (cached_version_ != vector_->version) {
    peers_by_address_.clear();
    cached_version_ = vector_->version;
  }
  if (address < peers_by_address_.size() && peers_by_address_[address] != kAnyPeer) {
    return peers_by_address_[address];
  }
  const Address* const name = vector_->names.find(address);
  if (name == nullptr) return std::nullopt;
  if (peers_by_address_.size() <= address) peers_by_address_.resize(address + 1, kAnyPeer);
  return peers_by_address_[address] = peer_named(*name).number;
}

uint64_t Endpoint::source_of(Peer& peer) {
  if (peer.source_version != vector_->version) {
    auto source = vector_->names.number_of(peer.name);
    if (!source) source = vector_->names.number_of(peer.other_name);
    peer.source = source.value_or(FI_ADDR_NOTAVAIL);
    peer.source_version = vector_->version;
  }
  return peer.source;
}

Greeting Endpoint::greeting_for(const Peer& peer) const {
  Greeting greeting{.instance = instance_,
                    .token = peer.token,
                    .token_address = reinterpret_cast<uint64_t>(peer.token.data()),
                    .listener = listener_->handle()};
  greeting.set_name(name_);
  return greeting;
}

void Endpoint::call(Peer& peer) {
  if (peer.tcp_connecting || peer.connecting != nullptr || peer.outbox->is_open()) return;
  if (peer.sends_fail()) return;
  peer.tcp_connecting = true;
  peer.tcp_calls.push_back(bootstrap_->call(peer.name, name_, greeting_for(peer)));
  hand_memory_over(peer, peer.tcp_calls.back());
}

// To a peer on this host: what we send to it goes through this memory.
void Endpoint::hand_memory_over(Peer& peer, EndpointBootstrap::CallId call) {
  if (!bootstrap_->is_within_host(call) || peer.outbox->is_open()) return;
  if (peer.shared_sender == nullptr) peer.shared_sender = SharedSender::make();
  if (peer.shared_sender != nullptr) bootstrap_->hand_over(call, peer.shared_sender->descriptor());
}

// Fails the peer when what it sent before is received.
void Endpoint::fail_peer_later(Peer& peer, DelayedFailure failure) {
  std::optional<DelayedFailure>& known = peer.failure;
  if (known && (known->sends_fail || !failure.sends_fail)) return;
  if (known) failure.lasted = known->lasted;
  known = std::move(failure);
}

void Endpoint::cannot_send(Peer& peer, const Error& why) {
  fail_peer_later(peer, {.error = fi_error(why.code), .why = why.message, .sends_fail = true});
}

void Endpoint::progress_connections() {
  const auto now = Clock::now();
  const auto turn = attended_.advance(now);
  bool awaited = false;
  for (const auto& each : peers_) {
    Peer& peer = *each;
    if (peer.connecting != nullptr) finish_connect(peer);
    if (peer.connecting_puts != nullptr) finish_connect_puts(peer);
    awaited |= peer.tcp_connecting || peer.connecting != nullptr ||
               peer.connecting_puts != nullptr ||
               (peer.instance != 0 && peer.frames.source == nullptr);
    if (!peer.failure) continue;
    // Time does not count while frames of the peer wait for the application to read its
    // completions.
    if (!receives_full() || !peer.has_unread_frames()) peer.failure->lasted += turn;
    if (peer.failure->lasted > kDrainTime) {
      const DelayedFailure failure = *peer.failure;
      fail_peer(peer, failure.error, failure.why);
    }
  }
  awaited |= !unidentified_.empty();
  if (!awaited && now - polled_at_ < kPollInterval) return;
  polled_at_ = now;
  for (const EndpointBootstrap::Event& event : bootstrap_->poll()) on_event(event);
  identify_connections();
  accept_unidentified();
  identify_connections();
}

void Endpoint::on_event(const EndpointBootstrap::Event& event) {
  using Kind = EndpointBootstrap::Event::Kind;
  if (event.kind == Kind::kCalled || event.kind == Kind::kAnswered) return on_greeting(event);
  const auto at = std::ranges::find_if(
      peers_, [&](auto& one) { return std::erase(one->tcp_calls, event.call) > 0; });
  if (at == peers_.end()) return;
  Peer& peer = **at;
  if (event.kind == Kind::kFailed) peer.tcp_connecting = false;
  if (!peer.tcp_calls.empty()) return;  // both sides have called: the other TCP connection stays
  if (peer.instance == 0) {
    return fail_peer(peer, event.error,
                     to_string(peer.name) + " cannot be reached: " + std::strerror(event.error));
  }
  fail_peer_later(peer, {.error = FI_ECONNRESET,
                         .why = to_string(peer.name) + " has ended: see that process's output"});
}

// Whether a caller of this name may become a peer. Peers are never removed, and a greeting proves
// nothing. So the number of peers that are neither connected nor in the address vector is bounded,
// of one host and of all.
bool Endpoint::admits(const Address& name) const {
  if (peers_by_name_.contains(name) || vector_->names.number_of(name)) return true;
  size_t of_all = 0;
  size_t of_host = 0;
  for (const auto& peer : peers_) {
    if (peer->outbox->is_open() || vector_->names.number_of(peer->name)) continue;
    ++of_all;
    of_host += same_ip(peer->name, name) ? 1 : 0;
  }
  return of_host < kMaxUnprovenOfHost && of_all < kMaxUnproven;
}

void Endpoint::on_greeting(const EndpointBootstrap::Event& event) {
  const bool answers = event.kind == EndpointBootstrap::Event::Kind::kAnswered;
  Peer* peer = nullptr;
  if (!answers) {
    if (!admits(event.name)) return bootstrap_->end(event.call);
    peer = &peer_named(event.name);
  } else {
    const auto called = std::ranges::find_if(peers_, [&](const auto& one) {
      return std::ranges::count(one->tcp_calls, event.call) > 0;
    });
    if (called == peers_.end()) return bootstrap_->end(event.call);
    peer = called->get();
    peer->tcp_connecting = false;
    // A peer with several addresses may have a name other than the one that we have called.
    if (peer->name != event.name) peer->other_name = event.name;
    peers_by_name_.emplace(event.name, peer);
  }
  const bool other = peer->instance != 0 && peer->instance != event.greeting.instance;
  if (other || peer->sends_fail() || peer->closed_by_peer) {
    std::erase(peer->tcp_calls, event.call);
    fail_peer(*peer, FI_ECONNRESET, to_string(peer->name) + " has ended and restarted");
    if (answers) peer->tcp_calls.push_back(event.call);
  }
  // Two are usual, as both sides may call.
  if (!answers && peer->tcp_calls.size() == kMaxCalls) return bootstrap_->end(event.call);
  peer->failure.reset();
  peer->instance = event.greeting.instance;
  if (!answers) {
    peer->tcp_calls.push_back(event.call);
    hand_memory_over(*peer, event.call);
    bootstrap_->answer(event.call, greeting_for(*peer));
  }
  // Both sides may call: then the same memory comes twice.
  if (event.memory && peer->shared.source == nullptr) {
    peer->shared.source = SharedReceiver::map(event.memory);
    if (peer->shared.source == nullptr) {
      return fail_peer(*peer, FI_ENOMEM,
                       to_string(peer->name) +
                           " handed over memory that cannot be mapped: raise ulimit -v, or set "
                           "PACECAR_CMA=off");
    }
  }
  if (peer->outbox->is_open() || peer->connecting != nullptr) return;
  peer->remote_token = event.greeting.token;
  peer->remote_listener = event.greeting.listener;
  peer->memory =
      PeerMemory::open(event.process, event.greeting.token_address, event.greeting.token);
  auto connecting =
      domain_.pacecar().connect(domain_.nic(), event.greeting.listener, {.copied = true});
  if (!connecting) {
    return fail_peer(*peer, fi_error(connecting.error().code), connecting.error().message);
  }
  peer->connecting = std::move(*connecting);
}

void Endpoint::finish_connect(Peer& peer) {
  auto connection = peer.connecting->poll();
  if (connection && *connection == nullptr) return;
  peer.connecting.reset();
  if (!connection) return cannot_send(peer, connection.error());
  auto opened = peer.outbox->open(std::move(*connection),
                                  {.kind = FrameKind::kHello,
                                   .flags = peer.memory ? kDirect : uint8_t{0},
                                   .tag = peer.remote_token[0],
                                   .data = peer.remote_token[1]},
                                  std::move(peer.shared_sender));
  // Messages are posted before their completions are reported: the application that reads these may
  // make no progress for long afterwards.
  if (opened) opened = peer.outbox->start(Outbox::Coming::kNothing);
  if (!opened) return cannot_send(peer, opened.error());
  for (PendingCompletion& pending : peer.held_completions) report(pending, tx_queue_);
  peer.held_completions.clear();
}

void Endpoint::finish_connect_puts(Peer& peer) {
  auto connection = peer.connecting_puts->poll();
  if (connection && *connection == nullptr) return;
  peer.connecting_puts.reset();
  auto opened = connection ? Result<void>() : tl::unexpected(connection.error());
  if (opened) {
    peer.puts = std::make_unique<PutBox>(domain_.context_of_process(), std::move(*connection));
    opened = peer.puts->open({.kind = FrameKind::kHello,
                              .operation = 1,
                              .tag = peer.remote_token[0],
                              .data = peer.remote_token[1]});
  }
  if (!opened) cannot_send(peer, opened.error());
}

void Endpoint::accept_unidentified() {
  // Further connections wait in the listener until the oldest has had time for its kHello.
  while (unidentified_.size() < kMaxUnidentified ||
         Clock::now() - unidentified_.front().begun >= kHelloTime) {
    auto connection = listener_->accept();
    if (!connection) return log_warning(connection.error().message);
    if (*connection == nullptr) return;
    if (unidentified_.size() == kMaxUnidentified) unidentified_.erase(unidentified_.begin());
    auto inbox = std::make_unique<Inbox>(domain_.context_of_process(), std::move(*connection));
    if (const auto opened = inbox->open(); !opened) {
      log_warning(opened.error().message);
      continue;
    }
    unidentified_.push_back({.inbox = std::move(inbox), .begun = Clock::now()});
  }
}

// The token in the first frame (kHello) identifies the peer.
void Endpoint::identify_connections() {
  for (size_t i = 0; i < unidentified_.size();) {
    unidentified_[i].inbox->turn();
    const auto message = unidentified_[i].inbox->next();
    const bool silent = message && message->empty();
    if (silent && Clock::now() - unidentified_[i].begun < EndpointBootstrap::kPatience) {
      ++i;
      continue;
    }
    std::unique_ptr<Inbox> inbox = std::move(unidentified_[i].inbox);
    unidentified_.erase(unidentified_.begin() + static_cast<ptrdiff_t>(i));
    if (!message || silent) continue;
    const auto hello = FrameReader(*message).next();
    if (!hello || hello->frame.kind != FrameKind::kHello) continue;
    const Token token{hello->frame.tag, hello->frame.data};
    const auto peer =
        std::ranges::find_if(peers_, [&](const auto& known) { return known->token == token; });
    if (peer == peers_.end() || !inbox->done()) continue;
    const bool of_puts = hello->frame.operation == 1;
    IncomingStream& stream = of_puts ? (*peer)->placed : (*peer)->frames;
    if (stream.source != nullptr) continue;
    stream.source = std::move(inbox);
    if (!of_puts) (*peer)->reports_reading = (hello->frame.flags & kDirect) != 0;
  }
}

// The region is being closed. Reads of it that are not served yet are refused, and so are writes to
// it whose bytes we are reading; no bounce buffer is copied to it. Other operations go on, and
// register their memory for themselves.
void Endpoint::forget(const MemoryRegion& region) {
  std::vector<uint64_t> served;
  operations_.for_each([&](uint64_t number, Operation& operation) {
    using Kind = Operation::Kind;
    bool uses = false;
    for (MemoryRegion*& of : operation.local.regions) {
      uses |= of == &region;
      if (of == &region) of = nullptr;
    }
    if (operation.bounce && std::ranges::count(operation.bounce->device.regions, &region) > 0) {
      operation.bounce->device = Local();  // is not copied to
      uses = true;
    }
    const bool unserved = (operation.kind == Kind::kServeRead && !operation.puts_issued) ||
                          (operation.kind == Kind::kServeWrite && operation.reads_directly);
    if (uses && unserved) served.push_back(number);
  });
  for (const uint64_t number : served) {
    Operation* const operation = operations_.find(number);
    if (operation == nullptr) continue;  // the peer was failed meanwhile
    Peer& peer = *operation->peer;
    const uint64_t remote_id = operation->remote_id;
    end(*operation);
    reply_status(peer, remote_id, Status::kNoKey);
  }
}

// --- failure of a peer ---

void Endpoint::fail_peer(Peer& peer, int error, const std::string& why) {
  const bool closed = peer.closed_by_peer;
  if (!closed) log_warning(why);
  for (const EndpointBootstrap::CallId one : peer.tcp_calls) bootstrap_->end(one);
  std::deque<PendingCompletion> held = reset(peer);
  for (PendingCompletion& pending : held) {
    pending.completion.fail(error, why);
    report(pending, tx_queue_);
  }
  operations_.for_each([&](uint64_t /*number*/, Operation& operation) {
    if (operation.peer == &peer) end(operation, error, why);
  });
  forget_messages_of(peer);
  if (closed) return;
  for (Messages* messages : {&tagged_, &untagged_}) {  // receives that only this peer could match
    for (auto at = messages->receives().begin(); at != messages->receives().end();) {
      const auto next = std::next(at);
      if (at->pattern.source == peer.number) fail_receive(*messages, at, error, why);
      at = next;
    }
  }
}

// Drops the peer's unexpected offers. Its eager messages can still be received, but get no kDone.
void Endpoint::forget_messages_of(const Peer& peer) {
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->messages().begin(); at != messages->messages().end();) {
      const auto next = std::next(at);
      const bool of_peer = at->source == peer.number;
      if (of_peer) at->message.frame.flags &= static_cast<uint8_t>(~kWantsDone);
      if (of_peer && at->message.frame.kind == FrameKind::kOffer) take_unexpected(*messages, at);
      at = next;
    }
  }
}

}  // namespace pacecar::fabric
