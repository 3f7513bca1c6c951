// UC over a wire that loses, repeats, reorders and corrupts packets. Each completion at the
// receiver is one whole message in one posted receive, and each send completes.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "tests/support/standard_pair.h"

namespace pacecar::unreliable_property {
namespace {

using test::Datagram;
using test::StandardPair;
using test::TestMemory;

constexpr Bytes kLargest = 5000;
constexpr size_t kReceives = 16;

struct Message {
  const TestMemory* from = nullptr;
  Bytes size = 0;
};

class UnreliableWorld {
 public:
  UnreliableWorld(double fault, uint64_t seed) : fault_(fault), prng_(seed) {
    for (uint64_t id = 0; id < kReceives; ++id) {
      receives_.push_back(&pair_.memory(1, kLargest, Access::kLocalWrite, 0xEE));
      post_receive(id);
    }
  }

  void send(Bytes size) {
    const auto index = static_cast<uint32_t>(messages_.size());
    const auto first = static_cast<uint8_t>(index * 37 + 1);
    messages_.push_back({&pair_.memory(0, kLargest, Access::kLocalRead, first), size});
    WorkRequest request = StandardPair::send(*messages_.back().from, size, index);
    request.opcode = Opcode::kSendWithImm;
    request.immediate = index;
    RC_ASSERT(pair_.post(0, ends_[0], request) == 1U);
  }

  void run() {
    for (int i = 0; i < 1000; ++i) step();
    RC_ASSERT(sent_ == messages_.size());
    if (fault_ == 0) {
      RC_ASSERT(received_ == messages_.size());
    }
  }

 private:
  void post_receive(uint64_t id) {
    const auto receive = StandardPair::receive(*receives_[id], id);
    RC_ASSERT(pair_.nic(1).post_receives(ends_[1], {&receive, 1}) == 1U);
    posted_.insert(id);
  }
  void step() {
    pair_.now = pair_.now + Duration::from_us(3);
    pair_.nic(0).on_time(pair_.now);
    for (Datagram& datagram : pair_.transmit(0)) carry(std::move(datagram));
    for (size_t left = wire_.size(); left > 0; --left) {
      Datagram datagram = std::move(wire_.front());
      wire_.pop_front();
      if (prng_.chance(fault_)) {
        wire_.push_back(std::move(datagram));  // not before the next step
      } else {
        pair_.deliver(1, datagram);
      }
    }
    RC_ASSERT(pair_.transmit(1).empty());
    pair_.collect();
    for (const Completion& done : pair_.completions[0]) {
      RC_ASSERT(done.status == CompletionStatus::kOk);
      RC_ASSERT(done.work_request == sent_++);
    }
    for (const Completion& received : pair_.completions[1]) check(received);
    pair_.completions = {};
  }
  void carry(Datagram datagram) {
    if (prng_.chance(fault_)) return;
    if (prng_.chance(fault_)) wire_.push_back(datagram);
    if (prng_.chance(fault_)) datagram.bytes[prng_.below(datagram.bytes.size())] ^= 0x5A;
    wire_.push_back(std::move(datagram));
  }
  void check(const Completion& received) {
    ++received_;
    RC_ASSERT(received.kind == CompletionKind::kReceivedSend);
    RC_ASSERT(posted_.erase(received.work_request) == 1U);
    RC_ASSERT(received.immediate < messages_.size());
    const Message& message = messages_[received.immediate];
    RC_ASSERT(received.bytes == message.size);
    auto& bytes = receives_[received.work_request]->bytes;
    const auto size = static_cast<std::ptrdiff_t>(message.size);
    RC_ASSERT(std::equal(bytes.begin(), bytes.begin() + size, message.from->bytes.begin()));
    std::ranges::fill(bytes, uint8_t{0xEE});
    post_receive(received.work_request);
  }

  const double fault_;  // probability of each fault, per packet
  Prng prng_;
  StandardPair pair_;
  StandardPair::Ends ends_ = pair_.join_unreliably();
  std::deque<Datagram> wire_;
  std::vector<TestMemory*> receives_;
  std::set<uint64_t> posted_;
  std::vector<Message> messages_;
  size_t sent_ = 0;
  size_t received_ = 0;
};

RC_GTEST_PROP(Unreliable, OnlyWholeMessagesComplete, ()) {
  const auto fault = *rc::gen::elementOf(std::vector<double>{0, 0.01, 0.1, 0.3});
  UnreliableWorld world(fault, *rc::gen::arbitrary<uint64_t>());
  const auto sizes = *rc::gen::container<std::vector<Bytes>>(
      kReceives,
      rc::gen::oneOf(rc::gen::inRange<Bytes>(0, 100), rc::gen::inRange<Bytes>(0, kLargest + 1),
                     rc::gen::elementOf(std::vector<Bytes>{1024, 2048, 2049})));
  for (const Bytes size : sizes) world.send(size);
  world.run();
}

}  // namespace
}  // namespace pacecar::unreliable_property
