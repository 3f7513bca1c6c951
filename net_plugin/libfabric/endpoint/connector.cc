#include "net_plugin/libfabric/endpoint/connector.h"

#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/info.h"
#include "transport/base/random_word.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

// Interval of polling the TCP sockets. While a peer is connecting they are polled in every turn.
constexpr auto kPollInterval = std::chrono::microseconds(200);
// For a connection's kHello, which takes a round trip, while further connections wait.
constexpr auto kHelloTime = std::chrono::milliseconds(100);

// The first frame of a connection to the peer.
Frame hello_to(const Peer& peer) {
  return {.kind = FrameKind::kHello, .tag = peer.remote_token[0], .data = peer.remote_token[1]};
}

}  // namespace

Connector::Connector(EndpointState& state, FailPeer fail_peer, PeerTable::IsInUse is_in_use)
    : state_(state),
      fail_peer_(std::move(fail_peer)),
      is_in_use_(std::move(is_in_use)),
      instance_(random_u64()) {}

int Connector::open(const Address& wanted) {
  Domain& domain = state_.domain;
  auto listener = domain.pacecar().listen(domain.nic());
  if (!listener) return failed(listener.error());
  auto bootstrap = EndpointBootstrap::open(wanted, domain.ports());
  if (!bootstrap) {
    log_warning(bootstrap.error().message);
    return -FI_EADDRINUSE;
  }
  listener_ = std::move(*listener);
  bootstrap_ = std::move(*bootstrap);
  name_ = bootstrap_->address();
  if (is_unspecified(name_)) {  // the name is the address of this host that peers call
    const uint16_t port = name_.port;
    const std::string& device = domain.pacecar().nics()[domain.nic()].device;
    name_ = address_of_device(device, family_of(name_)).value_or(name_);
    name_.port = port;
  }
  if (domain.cma()) bootstrap_->enable_within_host(name_);
  return 0;
}

Greeting Connector::greeting_for(const Peer& peer) const {
  Greeting greeting{.instance = instance_,
                    .token = peer.token,
                    .token_address = reinterpret_cast<uint64_t>(peer.token.data()),
                    .listener = listener_->handle()};
  greeting.set_name(name_);
  return greeting;
}

void Connector::call(Peer& peer) {
  const bool called = !peer.tcp_calls.empty() || peer.connecting != nullptr;
  if (called || peer.outbox->is_open() || peer.sends_fail()) return;
  peer.tcp_calls.push_back(bootstrap_->call(peer.name, name_, greeting_for(peer)));
  hand_memory_over(peer, peer.tcp_calls.back());
}

// To a peer on this host: what we send to it goes through this memory.
void Connector::hand_memory_over(Peer& peer, EndpointBootstrap::CallId call) {
  if (!bootstrap_->is_within_host(call) || peer.outbox->is_open()) return;
  if (peer.shared_sender == nullptr) peer.shared_sender = SharedSender::make();
  if (peer.shared_sender != nullptr) bootstrap_->hand_over(call, peer.shared_sender->descriptor());
}

void Connector::end_calls_of(Peer& peer) {
  for (const EndpointBootstrap::CallId one : peer.tcp_calls) bootstrap_->end(one);
  peer.tcp_calls.clear();
}

Peer* Connector::peer_of(EndpointBootstrap::CallId call) {
  auto& peers = state_.peers.all();
  const auto at = std::ranges::find_if(
      peers, [&](const Peer& one) { return std::ranges::count(one.tcp_calls, call) > 0; });
  return at != peers.end() ? &*at : nullptr;
}

void Connector::on_event(const EndpointBootstrap::Event& event) {
  using Kind = EndpointBootstrap::Event::Kind;
  if (event.kind == Kind::kCalled || event.kind == Kind::kAnswered) return on_greeting(event);
  Peer* const peer = peer_of(event.call);
  if (peer == nullptr) return;
  std::erase(peer->tcp_calls, event.call);
  if (!peer->tcp_calls.empty()) return;  // both sides have called: the other TCP connection stays
  if (peer->instance == 0) {
    peer->fail(Failure::When::kNow, event.error,
               to_string(peer->name) + " cannot be reached: " + std::strerror(event.error));
  } else {
    peer->fail(Failure::When::kDrained, FI_ECONNRESET,
               to_string(peer->name) + " has ended: see that process's output");
  }
}

void Connector::on_greeting(const EndpointBootstrap::Event& event) {
  const bool answers = event.kind == EndpointBootstrap::Event::Kind::kAnswered;
  const Address name = state_.domain.with_own_scope(event.name);
  Peer* peer = nullptr;
  if (answers) {
    peer = peer_of(event.call);
  } else if (state_.peers.admits(name, is_in_use_)) {
    peer = &state_.peers.named(name);
  }
  if (peer == nullptr) return bootstrap_->end(event.call);
  const bool other = peer->instance != 0 && peer->instance != event.greeting.instance;
  // Whoever calls may give any name of its host. A process that has ended has closed its calls.
  const auto lives = [&](EndpointBootstrap::CallId one) { return bootstrap_->has_greeted(one); };
  if (other && !answers && std::ranges::any_of(peer->tcp_calls, lives)) {
    return bootstrap_->end(event.call);
  }
  if (answers) {
    // A peer with several addresses may have a name other than the one that we have called.
    state_.peers.add_name(name, *peer);
    std::erase(peer->tcp_calls, event.call);
  }
  if (peer->sends_fail()) {
    fail_peer_(*peer, Failure(*peer->failure));
  } else if (other) {
    fail_peer_(*peer,
               {.error = FI_ECONNRESET, .why = to_string(peer->name) + " has ended and restarted"});
  }
  // Two are usual, as both sides may call.
  if (!answers && peer->tcp_calls.size() == kMaxCalls) return bootstrap_->end(event.call);
  peer->tcp_calls.push_back(event.call);
  on_greeting_of(*peer, event);
}

void Connector::on_greeting_of(Peer& peer, const EndpointBootstrap::Event& event) {
  peer.failure.reset();
  peer.instance = event.greeting.instance;
  if (event.kind == EndpointBootstrap::Event::Kind::kCalled) {
    hand_memory_over(peer, event.call);
    bootstrap_->answer(event.call, greeting_for(peer));
    state_.domain.progress_while_owed();
  }
  // Both sides may call: then the same memory comes twice.
  if (event.memory && peer.shared.source == nullptr) {
    peer.shared.source = SharedReceiver::map(event.memory);
    if (peer.shared.source == nullptr) {
      return peer.fail(Failure::When::kNow, FI_ENOMEM,
                       to_string(peer.name) +
                           " handed over memory that cannot be mapped: raise ulimit -v, or set "
                           "PACECAR_EXPERT_CMA=off");
    }
  }
  if (!peer.outbox->is_open() && peer.connecting == nullptr) connect(peer, event);
}

void Connector::connect(Peer& peer, const EndpointBootstrap::Event& event) {
  const Greeting& greeting = event.greeting;
  peer.remote_token = greeting.token;
  peer.remote_listener = greeting.listener;
  peer.memory = PeerMemory::open(event.process, greeting.token_address, greeting.token);
  Domain& domain = state_.domain;
  auto connecting = domain.pacecar().connect(domain.nic(), greeting.listener, {.copied = true});
  if (!connecting) {
    const Error& why = connecting.error();
    return peer.fail(Failure::When::kNow, fi_error(why.code), why.message);
  }
  peer.connecting = std::move(*connecting);
}

// nullptr: there is none yet, or the peer has failed.
std::unique_ptr<SendConnection> Connector::made(Peer& peer,
                                                std::unique_ptr<Connecting>& connecting) {
  if (connecting == nullptr) return nullptr;
  auto connection = connecting->poll();
  if (connection && *connection == nullptr) return nullptr;
  connecting.reset();
  if (connection) return std::move(*connection);
  peer.cannot_send(connection.error());
  return nullptr;
}

void Connector::open_outbox(Peer& peer, std::unique_ptr<SendConnection> connection) {
  Frame hello = hello_to(peer);
  if (peer.memory) hello.flags = kDirect;
  auto opened = peer.outbox->open(std::move(connection), hello, std::move(peer.shared_sender));
  // Posted before the completions are reported: the application may then make no progress for long.
  if (opened) opened = peer.outbox->start(Outbox::Coming::kNothing);
  if (!opened) return peer.cannot_send(opened.error());
  for (PendingCompletion& pending : peer.held_completions) {
    state_.completions.report(std::move(pending));
  }
  peer.held_completions.clear();
}

void Connector::open_puts(Peer& peer, std::unique_ptr<SendConnection> connection) {
  Frame hello = hello_to(peer);
  hello.operation = 1;
  peer.puts = std::make_unique<PutBox>(state_.domain.context_of_process(), std::move(connection));
  if (const auto opened = peer.puts->open(hello); !opened) peer.cannot_send(opened.error());
}

void Connector::accept_unidentified() {
  // Further connections wait in the listener until the oldest has had time for its kHello.
  while (unidentified_.size() < kMaxUnidentified ||
         Clock::now() - unidentified_.front().begun >= kHelloTime) {
    auto connection = listener_->accept();
    if (!connection || *connection == nullptr) return;  // the call of a lost peer ends
    if (unidentified_.size() == kMaxUnidentified) unidentified_.erase(unidentified_.begin());
    auto inbox =
        std::make_unique<Inbox>(state_.domain.context_of_process(), std::move(*connection));
    if (const auto opened = inbox->open(); !opened) {
      log_warning(opened.error().message);
      continue;
    }
    unidentified_.push_back({.inbox = std::move(inbox), .begun = Clock::now()});
  }
}

void Connector::identify_connections() {
  for (auto at = unidentified_.begin(); at != unidentified_.end();) {
    at->inbox->turn();
    const auto message = at->inbox->next();
    const bool silent = message && message->empty();
    if (silent &&
        Clock::now() - at->begun < std::chrono::nanoseconds(EndpointBootstrap::kPatience.ns())) {
      ++at;
      continue;
    }
    std::unique_ptr<Inbox> inbox = std::move(at->inbox);
    at = unidentified_.erase(at);
    if (message && !silent) identify(std::move(inbox), *message);
  }
}

// The token in the first frame (kHello) identifies the peer.
void Connector::identify(std::unique_ptr<Inbox> inbox, std::span<const uint8_t> message) {
  const auto hello = FrameReader(message).next();
  if (!hello || hello->frame.kind != FrameKind::kHello) return;
  const Token token{hello->frame.tag, hello->frame.data};
  auto& peers = state_.peers.all();
  const auto peer = std::ranges::find(peers, token, &Peer::token);
  if (peer == peers.end() || !inbox->done()) return;
  const bool of_puts = hello->frame.operation == 1;
  IncomingStream& stream = of_puts ? peer->placed : peer->frames;
  if (stream.source != nullptr) return;
  stream.source = std::move(inbox);
  if (!of_puts) peer->reports_reading = (hello->frame.flags & kDirect) != 0;
}

void Connector::progress() {
  bool awaited = !unidentified_.empty();
  for (Peer& peer : state_.peers.all()) {
    if (peer.is_lost()) continue;
    if (auto made_now = made(peer, peer.connecting)) open_outbox(peer, std::move(made_now));
    if (auto made_now = made(peer, peer.connecting_puts)) open_puts(peer, std::move(made_now));
    awaited |= peer.connecting != nullptr || peer.connecting_puts != nullptr ||
               (!peer.tcp_calls.empty() && peer.frames.source == nullptr);
  }
  const auto now = Clock::now();
  if (!awaited && now - polled_at_ < kPollInterval) return;
  polled_at_ = now;
  for (const EndpointBootstrap::Event& event : bootstrap_->poll()) on_event(event);
  if (const int error = bootstrap_->take_accept_error(); error > 0) {
    log_warning(bootstrap::socket_error("cannot accept callers", error).message);
  }
  identify_connections();
  accept_unidentified();
  identify_connections();
}

}  // namespace pacecar::fabric
