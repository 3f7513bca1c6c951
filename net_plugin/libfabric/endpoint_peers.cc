// How an endpoint and its peers come together, and part.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"
#include "net_plugin/libfabric/link/socket_name.h"
#include "transport/base/random_word.h"

namespace pacecar::fabric {
namespace {

using Clock = Meeting::Clock;

// Between two looks at the sockets. While peers are awaited, they are looked at in every turn.
constexpr auto kLook = std::chrono::microseconds(200);
// What a peer has sent before its end is still on its way.
constexpr auto kAfterEnd = std::chrono::milliseconds(500);

}  // namespace

PeerId Endpoint::peer_named(const Name& name) {
  const auto known = peers_by_name_.find(name);
  if (known != peers_by_name_.end()) return known->second;
  const auto number = static_cast<PeerId>(peers_.size());
  auto peer = std::make_unique<Peer>();
  peer->name = name;
  peer->token = {random_u64(), random_u64()};
  peer->outbox = std::make_unique<Outbox>(domain_.context_of_process());
  peers_.push_back(std::move(peer));
  peers_by_name_.emplace(name, number);
  return number;
}

std::optional<PeerId> Endpoint::peer_number(fi_addr_t address) {
  if (copied_version_ != vector_->version) {
    peers_by_address_.clear();
    copied_version_ = vector_->version;
  }
  if (address < peers_by_address_.size() && peers_by_address_[address] != kAnyPeer) {
    return peers_by_address_[address];
  }
  const Name* const name = vector_->names.find(address);
  if (name == nullptr) return std::nullopt;
  if (peers_by_address_.size() <= address) peers_by_address_.resize(address + 1, kAnyPeer);
  return peers_by_address_[address] = peer_named(*name);
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
                    .name_size = static_cast<uint32_t>(name_.size()),
                    .listener = listener_->handle()};
  std::memcpy(greeting.name.data(), name_.data(), name_.size());
  return greeting;
}

void Endpoint::call(Peer& peer) {
  if (peer.calling || peer.connecting != nullptr || peer.outbox->is_open()) return;
  peer.calling = true;
  peer.calls.push_back(meeting_->call(peer.name, name_, greeting_for(peer)));
}

void Endpoint::meet() {
  bool awaits = false;
  for (PeerId number = 0; number < peers_.size(); ++number) {
    Peer& peer = *peers_[number];
    if (peer.connecting != nullptr) join(number);
    if (peer.connecting_puts != nullptr) join_puts(number);
    awaits |= peer.calling || peer.connecting != nullptr || peer.connecting_puts != nullptr ||
              (peer.instance != 0 && peer.frames.inbox == nullptr);
    if (peer.lost && Clock::now() - *peer.lost > kAfterEnd) {
      fail_peer(number, FI_ECONNRESET, name_text(peer.name) + " has ended: look there");
    }
  }
  awaits |= !strangers_.empty();
  const auto now = Clock::now();
  if (!awaits && now - met_ < kLook) return;
  met_ = now;
  for (const Meeting::Event& event : meeting_->poll()) on_event(event);
  accept_strangers();
  greet_strangers();
}

void Endpoint::on_event(const Meeting::Event& event) {
  using Kind = Meeting::Event::Kind;
  if (event.kind == Kind::kCalled || event.kind == Kind::kAnswered) return on_greeting(event);
  for (PeerId number = 0; number < peers_.size(); ++number) {
    Peer& peer = *peers_[number];
    if (std::erase(peer.calls, event.call) == 0) continue;
    if (event.kind == Kind::kLost) {
      // The other call of two may be the one that stays.
      if (peer.calls.empty()) peer.lost = Clock::now();
    } else if (peer.calling && peer.instance == 0) {
      fail_peer(number, event.error,
                name_text(peer.name) + " cannot be reached: " + std::strerror(event.error));
    } else {
      peer.calling = false;
    }
    return;
  }
}

void Endpoint::on_greeting(const Meeting::Event& event) {
  const bool answers = event.kind == Meeting::Event::Kind::kAnswered;
  PeerId number = 0;
  if (!answers) {
    number = peer_named(event.name);
  } else {
    const auto caller = std::ranges::find_if(
        peers_, [&](const auto& peer) { return std::ranges::count(peer->calls, event.call) > 0; });
    if (caller == peers_.end()) return meeting_->end(event.call);
    number = static_cast<PeerId>(caller - peers_.begin());
    (*caller)->calling = false;
    // He may have another name for himself, where his host has several addresses.
    if ((*caller)->name != event.name) (*caller)->other_name = event.name;
    peers_by_name_.emplace(event.name, number);
  }
  Peer* peer = peers_[number].get();
  const bool other = peer->instance != 0 && peer->instance != event.greeting.instance;
  if (other || peer->left) {
    std::erase(peer->calls, event.call);
    fail_peer(number, FI_ECONNRESET, name_text(peer->name) + " has ended, and begun anew");
    if (answers) peer->calls.push_back(event.call);
  }
  peer->lost.reset();
  peer->instance = event.greeting.instance;
  if (!answers) {
    peer->calls.push_back(event.call);
    meeting_->answer(event.call, greeting_for(*peer));
  }
  if (peer->outbox->is_open() || peer->connecting != nullptr) return;
  peer->his_token = event.greeting.token;
  peer->his_listener = event.greeting.listener;
  auto connecting =
      domain_.pacecar().connect(domain_.nic(), event.greeting.listener, {.copied = true});
  if (!connecting) {
    return fail_peer(number, fi_error(connecting.error().code), connecting.error().message);
  }
  peer->connecting = std::move(*connecting);
}

void Endpoint::join(PeerId number) {
  Peer& peer = *peers_[number];
  auto connection = peer.connecting->poll();
  if (!connection) {
    const Error why = connection.error();
    return fail_peer(number, fi_error(why.code), why.message);
  }
  if (*connection == nullptr) return;
  peer.connecting.reset();
  auto opened = peer.outbox->open(
      std::move(*connection),
      {.kind = FrameKind::kHello, .tag = peer.his_token[0], .data = peer.his_token[1]});
  // Whoever reads the completions may make no progress for long: the messages leave before them.
  if (opened) opened = peer.outbox->start(false);
  if (!opened) return fail_peer(number, fi_error(opened.error().code), opened.error().message);
  for (Outcome& outcome : peer.waiting) tell(outcome, tx_queue_);
  peer.waiting.clear();
}

void Endpoint::join_puts(PeerId number) {
  Peer& peer = *peers_[number];
  auto connection = peer.connecting_puts->poll();
  if (connection && *connection == nullptr) return;
  peer.connecting_puts.reset();
  auto opened = connection ? Result<void>() : tl::unexpected(connection.error());
  if (opened) {
    peer.puts = std::make_unique<PutBox>(domain_.context_of_process(), std::move(*connection));
    opened = peer.puts->open({.kind = FrameKind::kHello,
                              .operation = 1,
                              .tag = peer.his_token[0],
                              .data = peer.his_token[1]});
  }
  if (!opened) fail_peer(number, fi_error(opened.error().code), opened.error().message);
}

void Endpoint::accept_strangers() {
  while (true) {
    auto connection = listener_->accept();
    if (!connection) return log_warning(connection.error().message);
    if (*connection == nullptr) return;
    auto inbox = std::make_unique<Inbox>(domain_.context_of_process(), std::move(*connection));
    if (const auto opened = inbox->open(); !opened) {
      log_warning(opened.error().message);
      continue;
    }
    strangers_.push_back({.inbox = std::move(inbox), .begun = Clock::now()});
  }
}

// The first frame says whose connection it is.
void Endpoint::greet_strangers() {
  for (size_t i = 0; i < strangers_.size();) {
    strangers_[i].inbox->turn();
    const auto message = strangers_[i].inbox->next();
    const bool silent = message && message->empty();
    if (silent && Clock::now() - strangers_[i].begun < Meeting::kPatience) {
      ++i;
      continue;
    }
    std::unique_ptr<Inbox> inbox = std::move(strangers_[i].inbox);
    strangers_.erase(strangers_.begin() + static_cast<ptrdiff_t>(i));
    if (!message || silent) continue;
    const auto hello = FrameReader(*message).next();
    if (!hello || hello->frame.kind != FrameKind::kHello) continue;
    const Token token{hello->frame.tag, hello->frame.data};
    const auto peer =
        std::ranges::find_if(peers_, [&](const auto& known) { return known->token == token; });
    if (peer == peers_.end() || !inbox->done()) continue;
    Lane& lane = hello->frame.operation == 1 ? (*peer)->placed : (*peer)->frames;
    if (lane.inbox == nullptr) lane.inbox = std::move(inbox);
  }
}

// Memory that is not registered any more.
void Endpoint::forget(const MemoryRegion& region) {
  std::vector<std::pair<uint64_t, PeerId>> served;
  operations_.for_each([&](uint64_t number, Operation& operation) {
    const bool unserved = operation.kind == Operation::Kind::kServeRead && !operation.put;
    for (MemoryRegion*& of : operation.local.regions) {
      if (of != &region) continue;
      of = nullptr;
      if (unserved) served.emplace_back(number, operation.peer);
    }
    if (operation.bounce == nullptr) return;
    Local& device = operation.bounce->device;
    if (std::ranges::count(device.regions, &region) > 0) device = Local();  // nothing goes there
  });
  for (const auto& [number, peer] : served) {
    const uint64_t asked = operations_.find(number)->peers_number;
    end(number, 0, {});
    answer_status(peer, asked, Status::kNoKey);
  }
}

// --- the end of a peer ---

void Endpoint::fail_peer(PeerId number, int error, const std::string& why) {
  Peer& peer = *peers_[number];
  const bool farewell = peer.left;
  if (!farewell) log_warning(why);
  for (const Meeting::CallId one : peer.calls) meeting_->end(one);
  peer.calls.clear();
  peer.calling = false;
  peer.connecting.reset();
  peer.connecting_puts.reset();
  peer.frames = {};
  peer.placed = {};
  peer.puts.reset();
  peer.outbox = std::make_unique<Outbox>(domain_.context_of_process());
  peer.token = {random_u64(), random_u64()};
  peer.instance = 0;
  peer.left = false;
  peer.lost.reset();
  peer.to_put.clear();
  peer.to_ask.clear();
  std::deque<Outcome> waiting = std::move(peer.waiting);
  peer.waiting.clear();
  for (Outcome& outcome : waiting) tell_error(outcome, tx_queue_, error, why);
  fail_operations(number, error, why);
  forget_messages_of(number);
  if (!farewell) fail_receives_from(number, error, why);
}

void Endpoint::fail_operations(PeerId number, int error, const std::string& why) {
  std::vector<uint64_t> of_peer;
  operations_.for_each([&](uint64_t operation, const Operation& at) {
    if (at.peer == number) of_peer.push_back(operation);
  });
  for (const uint64_t operation : of_peer) end(operation, error, why);
}

// Offers, that is: what has come as a whole is there, but nobody waits to hear of it.
void Endpoint::forget_messages_of(PeerId number) {
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->messages().begin(); at != messages->messages().end();) {
      const auto next = std::next(at);
      const bool of_peer = at->source == number;
      if (of_peer) at->message.frame.flags &= static_cast<uint8_t>(~kWantsDone);
      if (of_peer && at->message.frame.kind == FrameKind::kOffer) {
        kept_bytes_ -= frame_bytes(0);
        messages->take(at);
      }
      at = next;
    }
  }
}

// Nothing will come for them.
void Endpoint::fail_receives_from(PeerId number, int error, const std::string& why) {
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->receives().begin(); at != messages->receives().end();) {
      const auto next = std::next(at);
      if (at->pattern.source == number) {
        const Pattern pattern = at->pattern;
        const Receive receive = messages->take(at);
        Outcome outcome;
        outcome.completion.context = receive.context;
        outcome.completion.flags = FI_RECV | (messages == &tagged_ ? FI_TAGGED : FI_MSG);
        outcome.completion.tag = pattern.tag;
        outcome.counts = FI_RECV;
        tell_error(outcome, rx_queue_, error, why);
      }
      at = next;
    }
  }
}

}  // namespace pacecar::fabric
