// A peer that speaks the libfabric provider's protocol, and lies: it meets an endpoint as a
// provider does, and then sends frames that a seed draws, some of them made from what the endpoint
// has sent. Dropped, it comes again.
#pragma once

#include <arpa/inet.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/link/inbox.h"
#include "net_plugin/libfabric/link/meeting.h"
#include "net_plugin/libfabric/link/outbox.h"
#include "net_plugin/libfabric/link/socket_name.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/prng.h"
#include "transport/base/random_word.h"

namespace pacecar::test {

class FiHostilePeer {
 public:
  FiHostilePeer(fabric::Name victim, uint64_t seed) : victim_(std::move(victim)), prng_(seed) {
    context_ = must(Context::open({}));
    listener_ = must(context_->listen(0));
    meeting_ = must(fabric::Meeting::open(loopback()));
  }
  ~FiHostilePeer() { leave(); }

  const fabric::Name& name() const { return meeting_->address(); }
  uint64_t meetings() const { return meetings_; }

  // Meets the endpoint. `two`: over both connections that a provider makes; else over one of them.
  void meet(bool two) {
    leave();
    ++meetings_;
    greeting_ = {.instance = random_u64(), .token = {random_u64(), random_u64()}};
    greeting_.name_size = static_cast<uint32_t>(name().size());
    greeting_.listener = listener_->handle();
    std::memcpy(greeting_.name.data(), name().data(), name().size());
    call_ = meeting_->call(victim_, name(), greeting_);
    const auto answer = answered();
    const bool only_puts = !two && prng_.below(2) == 0;
    for (const uint8_t lane : {0, 1}) {
      if (two || (lane == 1) == only_puts) join(lane, answer);
    }
  }

  // Sends a message of drawn frames, or of drawn bytes. False: the endpoint has dropped us.
  bool attack() {
    listen();
    const auto message = prng_.below(8) == 0 ? noise() : frames();
    Lane& lane = lanes_[lanes_.size() > 1 ? prng_.below(4) / 3 : 0];
    const auto until = Clock::now() + kPatience;
    while (lane.request != nullptr) {
      const auto tested = lane.connection->test(lane.request);
      if (!tested) return false;
      if (tested->done) lane.request = nullptr;
      listen();
      if (lost_) return false;
      if (Clock::now() > until) throw std::runtime_error("the endpoint takes nothing more");
    }
    std::memcpy(lane.bytes.data(), message.data(), message.size());
    const auto started = lane.connection->isend(lane.bytes.data(), message.size(), 0, lane.memory);
    if (!started) return false;
    lane.request = *started;
    return !lost_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Frame = fabric::Frame;
  using Kind = fabric::FrameKind;
  static constexpr auto kPatience = std::chrono::seconds(30);

  struct Lane {
    std::unique_ptr<SendConnection> connection;
    std::vector<uint8_t> bytes = std::vector<uint8_t>(fabric::kMessageBytes);
    const Memory* memory = nullptr;
    Request* request = nullptr;
  };

  template <typename T>
  static T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }
  static fabric::Name loopback() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return *fabric::name_of(reinterpret_cast<const sockaddr*>(&address));
  }

  void leave() {
    for (Lane& lane : lanes_) {
      const size_t nic = lane.connection->nic();
      lane.connection.reset();
      (void)context_->deregister_memory(nic, lane.memory);
    }
    lanes_.clear();
    inboxes_.clear();
    meeting_->end(call_);
    lost_ = false;
  }

  fabric::Greeting answered() {
    const auto until = Clock::now() + kPatience;
    while (Clock::now() < until) {
      for (const auto& event : meeting_->poll()) {
        using EventKind = fabric::Meeting::Event::Kind;
        if (event.call == call_ && event.kind == EventKind::kAnswered) return event.greeting;
        if (event.call == call_) throw std::runtime_error("the endpoint does not answer");
        if (event.kind == EventKind::kCalled) meeting_->answer(event.call, greeting_);
      }
    }
    throw std::runtime_error("the endpoint answers nobody");
  }

  void join(uint8_t number, const fabric::Greeting& answer) {
    auto connecting = must(context_->connect(0, answer.listener, {.puts = number == 1}));
    Lane lane;
    const auto until = Clock::now() + kPatience;
    while (lane.connection == nullptr) {
      lane.connection = must(connecting->poll());
      listen();
      if (Clock::now() > until) throw std::runtime_error("the endpoint accepts nobody");
    }
    lane.memory = must(
        context_->register_memory(lane.connection->nic(), lane.bytes.data(), lane.bytes.size()));
    const Frame hello{
        .kind = Kind::kHello, .operation = number, .tag = answer.token[0], .data = answer.token[1]};
    std::memcpy(lane.bytes.data(), &hello, sizeof hello);
    lane.request = must(lane.connection->isend(lane.bytes.data(), sizeof hello, 0, lane.memory));
    lanes_.push_back(std::move(lane));
  }

  // What the endpoint says to us; numbers of its operations are worth lying about.
  void listen() {
    for (const auto& event : meeting_->poll()) {
      using EventKind = fabric::Meeting::Event::Kind;
      if (event.kind == EventKind::kCalled) meeting_->answer(event.call, greeting_);
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
      while (const auto view = reader.next()) heard_[heard_count_++ % kHeard] = view->frame;
      if (!inbox->done()) lost_ = true;
    }
  }

  // --- what to say ---

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
    const Frame& known = heard_[prng_.below(kHeard)];
    return one_of<uint64_t>({0, 1, 5, 6, 7, 8, 4096, 131072, 131073, uint64_t{1} << 20,
                             ~uint64_t{0}, ~uint64_t{0} - 4095, known.id, known.id, known.address,
                             known.tag, prng_.next_u64()});
  }

  // Of the kinds that answer: to something that was asked, as far as anything was.
  Frame drawn() {
    const Frame& known = heard_[prng_.below(kHeard)];
    Frame frame{.kind = static_cast<Kind>(1 + prng_.below(10)),  // no farewell
                .flags = static_cast<uint8_t>(prng_.below(32)),
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
    if (prng_.below(2) == 0) frame.tag = 5 + prng_.below(2);  // keys that there are
    if (prng_.below(3) == 0) frame.address = prng_.below(4100);
    const bool answers = frame.kind == Kind::kClear || frame.kind == Kind::kDone;
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

  static constexpr size_t kHeard = 16;

  const fabric::Name victim_;
  Prng prng_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<fabric::Meeting> meeting_;
  fabric::Greeting greeting_;
  fabric::Meeting::CallId call_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<fabric::Inbox>> inboxes_;
  std::array<Frame, kHeard> heard_{};
  size_t heard_count_ = 0;
  bool lost_ = false;
  uint64_t meetings_ = 0;
};

}  // namespace pacecar::test
