#include "tests/sim/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tests/support/pending.h"

namespace pacecar::test {
namespace {

constexpr uint8_t kCanary = 0xC5;
constexpr Duration kFaultyPhase = Duration::from_ms(200);
constexpr Duration kLivenessLimit = Duration::from_s(30);
constexpr Duration kSettling = Duration::from_ms(100);
constexpr size_t kGroupsAhead = kMaxReceives;
constexpr size_t kSendsAhead = 40;

}  // namespace

Traffic::Traffic(TrafficWorld& world, Prng& random) : world_(world), random_(random) {
  for (size_t from = 0; from < world_.hosts(); ++from) {
    for (size_t to = 0; to < world_.hosts(); ++to) {
      if (from != to && random_.chance(0.7)) make_stream(from, to);
    }
  }
  make_stream(0, 1);  // a stream in any case; further ones between the hosts share its flow
}

Bytes Traffic::random_size() {
  switch (random_.below(4)) {
    case 0: return random_.below(3);  // often empty
    case 1: return random_.below(300);
    case 2: return 1024 * random_.below(5) + random_.below(3);  // around the packet size
    default: return random_.below(40'000);
  }
}

void Traffic::make_stream(size_t from, size_t to) {
  Stream& stream = streams_.emplace_back();
  stream.from = from;
  stream.to = to;
  stream.ends = connect_messengers(world_.messenger(from), world_.messenger(to), to, world_.now());
  stream.groups.resize(1 + random_.below(16));
  for (Group& group : stream.groups) {
    group.messages.resize(random_.chance(0.5) ? 1 : 1 + random_.below(kMaxGroup));
    for (size_t i = 0; i < group.messages.size(); ++i) {
      Group::Message& message = group.messages[i];
      message.tag = static_cast<int32_t>(100 + i);
      message.sent.resize(random_size());
      for (uint8_t& byte : message.sent) byte = static_cast<uint8_t>(random_.next_u64());
      // One byte more than needed, so that every buffer has an address of its own.
      message.received.assign(message.sent.size() + 1 + random_.below(2) * 100, kCanary);
    }
    group.send_order.resize(group.messages.size());
    std::iota(group.send_order.begin(), group.send_order.end(), size_t{0});
    for (size_t i = group.send_order.size(); i > 1; --i) {
      std::swap(group.send_order[i - 1], group.send_order[random_.below(i)]);
    }
    stream.sends += group.messages.size();
  }
}

// Posts as many requests as the bounds allow and checks the completed ones.
void Traffic::drive(Stream& stream) {
  const Instant now = world_.now();
  while (stream.groups_posted < stream.groups.size() &&
         stream.groups_posted - stream.groups_received < kGroupsAhead) {
    Group& group = stream.groups[stream.groups_posted++];
    MessageReceive& request = test::pending(stream.receive_requests.emplace_back());
    for (size_t i = 0; i < group.messages.size(); ++i) {
      Group::Message& message = group.messages[i];
      const auto region = world_.nic(stream.to).register_memory(
          message.received.data(), message.received.size(), Access::kRemoteWrite);
      request.add(message.received.data(), message.received.size(), message.tag,
                  {region.value().remote_address, region.value().key});
    }
    if (!world_.messenger(stream.to).receive(stream.ends.receive, request, now)) {
      complain("a receive within the bounds was refused");
    }
  }
  post_sends(stream);
  while (stream.groups_received < stream.groups_posted) {
    const MessageRequest& request = stream.receive_requests[stream.groups_received];
    if (request.state() == MessageRequest::State::kPending) break;
    check_received(stream, stream.groups[stream.groups_received++], request);
  }
  while (stream.sends_done < stream.sends_posted) {
    const MessageRequest& request = stream.send_requests[stream.sends_done];
    if (request.state() == MessageRequest::State::kPending) break;
    if (request.state() != MessageRequest::State::kDone) {
      complain(fmt::format("a send failed: reason {}", static_cast<int>(request.failure)));
    }
    ++stream.sends_done;
  }
}

void Traffic::post_sends(Stream& stream) {
  size_t index = stream.sends_posted;
  size_t group_number = 0;
  while (group_number < stream.groups.size() &&
         index >= stream.groups[group_number].messages.size()) {
    index -= stream.groups[group_number++].messages.size();
  }
  while (group_number < stream.groups.size() &&
         stream.sends_posted - stream.sends_done < kSendsAhead) {
    Group& group = stream.groups[group_number];
    Group::Message& message = group.messages[group.send_order[index]];
    uint32_t key = 0;
    if (!message.sent.empty()) {
      key = world_.nic(stream.from)
                .register_memory(message.sent.data(), message.sent.size(), Access::kLocalRead)
                .value()
                .key;
    }
    MessageSend& request = stream.send_requests.emplace_back();
    if (!world_.messenger(stream.from)
             .send(stream.ends.send,
                   test::pending(request,
                                 {message.sent.data(), message.sent.size(), message.tag, key}))) {
      complain("a send within the bounds was refused");
    }
    ++stream.sends_posted;
    if (++index == group.messages.size()) {
      index = 0;
      ++group_number;
    }
  }
}

void Traffic::check_received(Stream& stream, Group& group, const MessageRequest& request) {
  if (request.state() != MessageRequest::State::kDone) {
    return complain(fmt::format("a receive failed: reason {}", static_cast<int>(request.failure)));
  }
  for (size_t i = 0; i < group.messages.size(); ++i) {
    Group::Message& message = group.messages[i];
    ++result_.messages;
    if (request.sizes[i] != message.sent.size()) {
      return complain(fmt::format("stream {}->{}: {} bytes arrived of {}", stream.from, stream.to,
                                  request.sizes[i], message.sent.size()));
    }
    if (!std::equal(message.sent.begin(), message.sent.end(), message.received.begin())) {
      return complain(fmt::format("stream {}->{}: a message of {} bytes arrived changed",
                                  stream.from, stream.to, message.sent.size()));
    }
    const auto unused = message.received.begin() + static_cast<long>(message.sent.size());
    if (std::any_of(unused, message.received.end(), [](uint8_t b) { return b != kCanary; })) {
      return complain("bytes behind a message were written");
    }
    // From here on the buffer belongs to the application: no write may change it.
    std::fill(message.received.begin(), message.received.end(), kCanary);
  }
}

void Traffic::check_canaries() {
  for (const Stream& stream : streams_) {
    for (const Group& group : stream.groups) {
      for (const Group::Message& message : group.messages) {
        if (std::any_of(message.received.begin(), message.received.end(),
                        [](uint8_t b) { return b != kCanary; })) {
          return complain("a completed buffer was written again");
        }
      }
    }
  }
}

bool Traffic::all_done() {
  bool done = true;
  for (Stream& stream : streams_) {
    drive(stream);
    done =
        done && stream.sends_done == stream.sends && stream.groups_received == stream.groups.size();
  }
  return done || !result_.failure.empty();
}

void Traffic::complain(std::string what) {
  if (result_.failure.empty()) result_.failure = std::move(what);
}

TrafficResult Traffic::run() {
  const auto done = [this] { return all_done(); };
  if (!world_.run(world_.now() + kFaultyPhase, done)) {
    world_.stop_faults();
    if (!world_.run(world_.now() + kLivenessLimit, done)) {
      complain("something is still pending long after the faults stopped");
    }
  }
  // Packets still in the network arrive late, for buffers that are complete.
  world_.run(world_.now() + kSettling, [] { return false; });
  if (result_.failure.empty()) check_canaries();
  if (!world_.complaint().empty()) complain(world_.complaint());
  return std::move(result_);
}

}  // namespace pacecar::test
