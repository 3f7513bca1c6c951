// A hostile peer of the libfabric provider: it connects to an endpoint as a provider does, and then
// sends random frames, some with numbers from the endpoint's own frames. When the endpoint closes
// the connection, the peer connects again. One thread.
#pragma once

#include <arpa/inet.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/link/connections.h"
#include "net_plugin/libfabric/link/endpoint_bootstrap.h"
#include "net_plugin/libfabric/link/same_host.h"
#include "tests/support/waiting.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/prng.h"
#include "transport/base/random_word.h"
#include "transport/io/sockaddr.h"

namespace pacecar::test {

class FiHostilePeer {
 public:
  // `victim`: the endpoint's name. At 127.0.0.`host`. Every second seed connects through a Unix
  // socket, as a process of this host.
  FiHostilePeer(const void* victim, uint64_t seed, uint8_t host = 1)
      : victim_(*from_sockaddr(static_cast<const sockaddr*>(victim))), prng_(seed) {
    context_ = must(Context::open({}));
    listener_ = must(context_->listen(0));
    bootstrap_ = must(fabric::EndpointBootstrap::open(loopback(host)));
    if (seed % 2 == 0) bootstrap_->enable_within_host(name());
  }
  ~FiHostilePeer() { leave(); }

  const Address& name() const { return bootstrap_->address(); }
  // That name, with another port if one is given, as libfabric has names.
  std::vector<uint8_t> socket_name(uint16_t port = 0) const {
    SocketAddress raw{};
    const socklen_t bytes = to_sockaddr(name_with(port == 0 ? name().port : port), raw);
    const auto* const first = reinterpret_cast<const uint8_t*>(&raw);
    return {first, first + bytes};
  }
  uint64_t attempts() const { return attempts_; }

  // Connects to the endpoint. `two`: with both connections that a provider makes; else with one.
  void connect(bool two) {
    leave();
    ++attempts_;
    greeting_ = {.instance = random_u64(), .token = {random_u64(), random_u64()}};
    greeting_.listener = listener_->handle();
    greeting_.token_address =
        prng_.below(4) == 0 ? number() : reinterpret_cast<uint64_t>(greeting_.token.data());
    greeting_.set_name(name());
    call_ = bootstrap_->call(victim_, name(), greeting_);
    if (bootstrap_->is_within_host(call_)) share_memory();
    const auto answer = answered();
    const bool only_puts = !two && prng_.below(2) == 0;
    for (const uint8_t stream : {0, 1}) {
      if (two || (stream == 1) == only_puts) open_stream(stream, answer);
    }
    if (only_puts && !two) ring_.reset();  // the endpoint reads it only with stream 0
  }

  Address name_with(uint16_t port) const { return {.ip = name().ip, .port = port}; }
  // Whether the endpoint answers a greeting with our name at that port; then closes the connection.
  template <typename Progress>
  bool is_answered(uint16_t port, Progress progress) {
    const auto answer = answer_to(port, progress);
    if (answer) bootstrap_->end(answer->call);
    return answer.has_value();
  }
  // As is_answered(), but the connection stays open.
  template <typename Progress>
  bool is_answered_for_good(uint16_t port, Progress progress) {
    return answer_to(port, progress).has_value();
  }
  // How many connections that stayed open the endpoint has ended, as far as it was seen.
  size_t ended() const { return ended_; }
  // Connects to the endpoint, accepts the endpoint's own connection without an answer, and closes
  // the first one. The endpoint's connection stays open until the peer is destroyed.
  template <typename Progress>
  void hang_up_during_its_call(Progress progress) {
    const auto answer = answer_to(name().port, progress).value();
    std::unique_ptr<ReceiveConnection> accepted;
    for (const Waiting waiting; accepted == nullptr; waiting.pause()) {
      progress();
      accepted = must(listener_->accept());
    }
    inboxes_.push_back(std::make_unique<fabric::Inbox>(context_, std::move(accepted)));
    bootstrap_->end(answer.call);
  }
  // Makes connections to the endpoint that send nothing.
  template <typename Progress>
  std::vector<std::unique_ptr<SendConnection>> be_silent(size_t count, Progress progress) {
    const auto answer = answer_to(1, progress).value();
    bootstrap_->end(answer.call);
    std::vector<std::unique_ptr<Connecting>> calls;
    std::vector<std::unique_ptr<SendConnection>> connections;
    for (size_t i = 0; i < count; ++i)
      calls.push_back(must(context_->connect(0, answer.greeting.listener, {})));
    for (const Waiting waiting; connections.size() < count; waiting.pause()) {
      progress();
      for (auto& call : calls) {
        auto connection = call == nullptr ? nullptr : must(call->poll());
        if (connection == nullptr) continue;
        connections.push_back(std::move(connection));
        call.reset();
      }
      if (waiting.hangs()) throw std::runtime_error("the endpoint accepts nobody");
    }
    return connections;
  }

  // Sends a message of random frames, or of random bytes. False: the endpoint has closed the
  // connection.
  bool attack() {
    receive();
    const auto message = prng_.below(8) == 0 ? noise() : frames();
    if (ring_ != nullptr && prng_.below(2) == 0) return attack_through_memory(message);
    OutgoingStream& stream = streams_[streams_.size() > 1 ? prng_.below(4) / 3 : 0];
    for (const Waiting waiting; stream.request != nullptr; waiting.pause()) {
      const auto tested = stream.connection->test(stream.request);
      if (!tested) return false;
      if (tested->done) stream.request = nullptr;
      receive();
      if (lost_) return false;
      if (waiting.hangs()) throw std::runtime_error("the endpoint takes nothing more");
    }
    std::memcpy(stream.bytes.data(), message.data(), message.size());
    const auto started =
        stream.connection->isend(stream.bytes.data(), message.size(), 0, stream.memory);
    if (!started) return false;
    stream.request = *started;
    return !lost_;
  }

 private:
  using Frame = fabric::Frame;
  using Kind = fabric::FrameKind;

  struct OutgoingStream {
    std::unique_ptr<SendConnection> connection;
    std::vector<uint8_t> bytes = std::vector<uint8_t>(fabric::kMessageBytes);
    const Memory* memory = nullptr;
    Request* request = nullptr;
  };

  struct Answer {
    fabric::Greeting greeting;
    fabric::EndpointBootstrap::CallId call;
  };

  // The answer to a greeting with our name at that port; nullopt: the endpoint closes.
  template <typename Progress>
  std::optional<Answer> answer_to(uint16_t port, Progress progress) {
    using EventKind = fabric::EndpointBootstrap::Event::Kind;
    fabric::Greeting greeting{.instance = port, .token = {port, port}};
    greeting.listener = listener_->handle();
    greeting.set_name(name_with(port));
    const auto call = bootstrap_->call(victim_, name(), greeting);
    for (const Waiting waiting; !waiting.hangs(); waiting.pause()) {
      progress();
      for (const auto& event : bootstrap_->poll()) {
        if (event.call != call) {
          if (event.kind == EventKind::kLost) ++ended_;
          continue;
        }
        if (event.kind == EventKind::kAnswered) return Answer{event.greeting, call};
        bootstrap_->end(call);
        return std::nullopt;
      }
    }
    throw std::runtime_error("the endpoint neither answers nor hangs up");
  }

  template <typename T>
  static T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }
  static Address loopback(uint8_t host) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    return *from_sockaddr(reinterpret_cast<const sockaddr*>(&address));
  }

  // Sometimes with a wrong size.
  void share_memory() {
    posted_ = 0;
    auto sender = fabric::SharedSender::make();
    ring_.reset(static_cast<fabric::SharedRing*>(mmap(nullptr, sizeof(fabric::SharedRing),
                                                      PROT_READ | PROT_WRITE, MAP_SHARED,
                                                      sender->descriptor()->get(), 0)));
    const auto other = std::make_shared<FileDescriptor>(memfd_create("other", MFD_CLOEXEC));
    bootstrap_->hand_over(call_, prng_.below(8) == 0 ? std::shared_ptr<const FileDescriptor>(other)
                                                     : sender->descriptor());
  }

  // In a random slot, which the endpoint may be reading; sometimes with a wrong description.
  bool attack_through_memory(const std::vector<uint8_t>& message) {
    const Waiting waiting;
    for (; posted_ - ring_->consumed >= fabric::kMaxMessages; waiting.pause()) {
      receive();
      if (lost_) return false;
      // The frame was not accepted, or the endpoint has no room.
      if (waiting.hangs()) throw std::runtime_error("the endpoint reads nothing more");
    }
    const uint64_t slot =
        prng_.below(64) == 0 ? prng_.below(256) : prng_.below(fabric::kMaxMessages);
    const uint64_t size = prng_.below(64) == 0 ? prng_.below(1 << 24) : message.size();
    std::ranges::copy(message, ring_->slots[slot % fabric::kMaxMessages].begin());
    ring_->entries[posted_ % fabric::kMaxMessages] = (posted_ + 1) << 32 | slot << 24 | size;
    ++posted_;
    if (prng_.below(64) == 0) ring_->resting = true;
    return !lost_;
  }

  void leave() {
    ring_.reset();
    for (OutgoingStream& stream : streams_) {
      const size_t nic = stream.connection->nic();
      stream.connection.reset();
      (void)context_->deregister_memory(nic, stream.memory);
    }
    streams_.clear();
    inboxes_.clear();
    bootstrap_->end(call_);
    for (const auto call : answered_calls_) bootstrap_->end(call);
    answered_calls_.clear();
    lost_ = false;
  }

  void answer_call(fabric::EndpointBootstrap::CallId call) {
    bootstrap_->answer(call, greeting_);
    answered_calls_.push_back(call);
  }

  fabric::Greeting answered() {
    std::optional<fabric::Greeting> answer;
    for (const Waiting waiting; !waiting.hangs(); waiting.pause()) {
      for (const auto& event : bootstrap_->poll()) {
        using EventKind = fabric::EndpointBootstrap::Event::Kind;
        if (event.kind == EventKind::kCalled) answer_call(event.call);
        if (event.call != call_) continue;
        if (event.kind == EventKind::kAnswered) {
          answer = event.greeting;
        } else if (answer) {
          lost_ = true;  // at once
        } else {
          throw std::runtime_error("the endpoint does not answer");
        }
      }
      if (answer) return *answer;
    }
    throw std::runtime_error("the endpoint answers nobody");
  }

  void open_stream(uint8_t number, const fabric::Greeting& answer) {
    auto connecting = must(context_->connect(0, answer.listener, {.puts = number == 1}));
    OutgoingStream stream;
    for (const Waiting waiting; stream.connection == nullptr; waiting.pause()) {
      stream.connection = must(connecting->poll());
      receive();
      if (waiting.hangs()) throw std::runtime_error("the endpoint accepts nobody");
    }
    stream.memory = must(context_->register_memory(stream.connection->nic(), stream.bytes.data(),
                                                   stream.bytes.size()));
    const Frame hello{.kind = Kind::kHello,
                      .flags = prng_.below(2) == 0 ? fabric::kDirect : uint8_t{0},
                      .operation = number,
                      .tag = answer.token[0],
                      .data = answer.token[1]};
    std::memcpy(stream.bytes.data(), &hello, sizeof hello);
    stream.request =
        must(stream.connection->isend(stream.bytes.data(), sizeof hello, 0, stream.memory));
    streams_.push_back(std::move(stream));
  }

  // Receives the endpoint's frames, and keeps the last ones for forged replies.
  void receive() {
    for (const auto& event : bootstrap_->poll()) {
      using EventKind = fabric::EndpointBootstrap::Event::Kind;
      if (event.kind == EventKind::kCalled) answer_call(event.call);
      if (event.call == call_ && event.kind == EventKind::kLost) lost_ = true;
    }
    while (auto connection = must(listener_->accept())) {
      inboxes_.push_back(std::make_unique<fabric::Inbox>(context_, std::move(connection)));
      if (!inboxes_.back()->open()) inboxes_.pop_back();
    }
    for (auto& inbox : inboxes_) {
      const auto message = inbox->next();
      if (!message) {
        lost_ = true;
        return;
      }
      if (message->empty()) continue;
      fabric::FrameReader reader(*message);
      while (const auto view = reader.next())
        received_[received_count_++ % kRemembered] = view->frame;
      if (!inbox->done()) lost_ = true;
    }
  }

  // --- random frames ---

  std::vector<uint8_t> noise() {
    std::vector<uint8_t> bytes(1 + prng_.below(200));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(prng_.below(13));
    return bytes;
  }

  template <typename T, size_t kCount>
  T one_of(const T (&choices)[kCount]) {
    return choices[prng_.below(kCount)];
  }

  uint64_t number() {
    const Frame& known = received_[prng_.below(kRemembered)];
    return one_of<uint64_t>({0, 1, 5, 6, 7, 8, 4096, fabric::kEagerBytes, fabric::kEagerBytes + 1,
                             uint64_t{1} << 20, ~uint64_t{0}, ~uint64_t{0} - 4095, known.id,
                             known.id, known.address, known.tag,
                             reinterpret_cast<uint64_t>(received_.data()), prng_.next_u64()});
  }

  // Replies have the number of one of the endpoint's requests, if there is any.
  Frame drawn() {
    const Frame& known = received_[prng_.below(kRemembered)];
    Frame frame{.kind = static_cast<Kind>(1 + prng_.below(11)),  // no farewell
                .flags = static_cast<uint8_t>(prng_.below(64)),
                .operation = static_cast<uint8_t>(prng_.below(22)),
                .datatype = static_cast<uint8_t>(prng_.below(20)),
                .payload = static_cast<uint32_t>(
                    one_of<uint64_t>({0, 1, 4, 8, 16, 24, 48, 96, 120, prng_.below(4097)})),
                .tag = number(),
                .data = one_of<uint64_t>({0, 0, 1, 3, number()}),
                .length = number(),
                .id = number(),
                .address = number()};
    if (prng_.below(2) == 0) frame.length = frame.payload;
    if (prng_.below(2) == 0) frame.tag = 5 + prng_.below(2);  // keys that exist
    if (prng_.below(3) == 0) frame.address = prng_.below(4100);
    const bool answers = frame.kind == Kind::kClearToSend || frame.kind == Kind::kDone;
    if (answers && prng_.below(4) != 0) {
      frame.id = known.id;
      frame.length = one_of<uint64_t>({known.length, known.length / 2, frame.length});
    }
    return frame;
  }

  std::vector<uint8_t> frames() {
    std::vector<uint8_t> message;
    for (uint64_t left = 1 + prng_.below(6); left > 0; --left) {
      Frame frame = drawn();
      const size_t at = message.size();
      message.resize(at + fabric::frame_bytes(frame.payload), 0);
      std::memcpy(&message[at], &frame, sizeof frame);
      for (size_t i = at + sizeof frame; i + sizeof(uint64_t) <= message.size();) {
        const uint64_t word = number();
        std::memcpy(&message[i], &word, sizeof word);
        i += sizeof word;
      }
    }
    if (prng_.below(16) == 0) message.resize(1 + prng_.below(message.size()));
    return message;
  }

  static constexpr size_t kRemembered = 16;

  const Address victim_;
  Prng prng_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<fabric::EndpointBootstrap> bootstrap_;
  fabric::Greeting greeting_;
  fabric::EndpointBootstrap::CallId call_ = 0;
  std::vector<fabric::EndpointBootstrap::CallId> answered_calls_;
  std::vector<OutgoingStream> streams_;
  std::vector<std::unique_ptr<fabric::Inbox>> inboxes_;
  fabric::MappedRing ring_;  // empty without a shared ring
  uint64_t posted_ = 0;
  std::array<Frame, kRemembered> received_{};
  size_t received_count_ = 0;
  bool lost_ = false;
  uint64_t attempts_ = 0;
  size_t ended_ = 0;
};

}  // namespace pacecar::test
