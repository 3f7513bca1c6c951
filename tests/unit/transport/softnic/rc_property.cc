// Standard RC against a model of the expected memory: operations of all kinds, both ways, over a
// wire that loses, repeats, reorders and corrupts. The test overwrites the target of a completed
// operation at once, so that a second write shows.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "tests/support/rc_pair.h"

namespace pacecar::rc_property {
namespace {

using test::Datagram;
using test::SoftNicPair;
using test::TestMemory;

constexpr uint8_t kDone = 0xEE;
constexpr Duration kStep = Duration::from_us(3);
constexpr int kSteps = 400'000;

struct Faults {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;
  double corruption = 0;
};

struct Operation {
  Opcode opcode = Opcode::kWrite;
  size_t by = 0;  // side
  Bytes size = 0;
  const TestMemory* from = nullptr;
  TestMemory* to = nullptr;
  bool checked = false;
};

class World {
 public:
  World(const Faults& faults, uint64_t seed) : faults_(faults), prng_(seed) {}

  void add(Opcode opcode, size_t by, Bytes size) {
    const auto first = static_cast<uint8_t>(operations_.size() * 37 + 1);
    const size_t source = opcode == Opcode::kRead ? 1 - by : by;
    Operation operation{.opcode = opcode, .by = by, .size = size};
    operation.from = &pair_.memory(source, size + 1, Access::kRemoteAll, first);
    operation.to = &pair_.memory(1 - source, size + 1, Access::kRemoteAll, kDone);
    const size_t index = operations_.size();
    operations_.push_back(operation);
    const WorkRequest work_request{
        .id = index,
        .local =
            opcode == Opcode::kRead ? operation.to->bytes.data() : operation.from->bytes.data(),
        .remote = opcode == Opcode::kRead ? operation.from->address() : operation.to->address(),
        .length = size,
        .local_key =
            opcode == Opcode::kRead ? operation.to->region.key : operation.from->region.key,
        .remote_key =
            opcode == Opcode::kRead ? operation.from->region.key : operation.to->region.key,
        .immediate = opcode == Opcode::kWriteWithImm ? static_cast<uint32_t>(index) : 0,
        .opcode = opcode};
    if (opcode == Opcode::kSend || opcode == Opcode::kWriteWithImm) {
      const ReceiveRequest receive{.id = index,
                                   .local = operation.to->bytes.data(),
                                   .length = size,
                                   .local_key = operation.to->region.key};
      RC_ASSERT(pair_.nic(1 - by).post_receives(ends_[1 - by], {&receive, 1}) == 1U);
    }
    RC_ASSERT(pair_.post(by, ends_[by], work_request) == 1U);
    expected_ += opcode == Opcode::kSend || opcode == Opcode::kWriteWithImm ? 2 : 1;
  }

  void run() {
    for (int i = 0; i < kSteps && completions_ < expected_; ++i) step();
    RC_ASSERT(completions_ == expected_);
    for (int i = 0; i < 2000; ++i) step();  // whatever is late
    for (const Operation& operation : operations_) {
      RC_ASSERT(operation.checked);
      const auto& bytes = operation.to->bytes;
      RC_ASSERT(std::ranges::all_of(bytes, [](uint8_t byte) { return byte == kDone; }));
    }
  }

 private:
  void step() {
    pair_.now = pair_.now + kStep;
    for (size_t side = 0; side < 2; ++side) {
      pair_.nic(side).on_time(pair_.now);
      for (Datagram& datagram : pair_.transmit(side)) send(1 - side, std::move(datagram));
    }
    for (size_t side = 0; side < 2; ++side) deliver(side);
    pair_.collect();
    for (size_t side = 0; side < 2; ++side) {
      for (const Completion& completion : pair_.completions[side]) check(side, completion);
      pair_.completions[side].clear();
    }
  }
  void send(size_t to, Datagram datagram) {
    if (prng_.chance(faults_.loss)) return;
    if (prng_.chance(faults_.duplication)) wire_[to].push_back(datagram);
    if (prng_.chance(faults_.corruption)) {
      datagram.bytes[prng_.below(datagram.bytes.size())] ^= 0x5A;
    }
    wire_[to].push_back(std::move(datagram));
  }
  void deliver(size_t to) {
    for (size_t left = wire_[to].size(); left > 0; --left) {
      Datagram datagram = std::move(wire_[to].front());
      wire_[to].pop_front();
      if (prng_.chance(faults_.reordering)) {
        wire_[to].push_back(std::move(datagram));  // not before the next step
      } else {
        pair_.deliver(to, datagram);
      }
    }
  }
  void check(size_t side, const Completion& completion) {
    RC_ASSERT(completion.status == CompletionStatus::kOk);
    ++completions_;
    Operation& operation = operations_.at(completion.work_request);
    const bool sent = completion.kind == CompletionKind::kSent;
    RC_ASSERT(sent == (operation.by == side));
    const bool tells =
        operation.opcode == Opcode::kSend || operation.opcode == Opcode::kWriteWithImm;
    if (!sent) RC_ASSERT(completion.bytes == operation.size);
    if (sent && tells) return;  // the receiver had a completion, and sooner
    RC_ASSERT(!operation.checked);
    operation.checked = true;
    auto& bytes = operation.to->bytes;
    const auto end = bytes.begin() + static_cast<long>(operation.size);
    RC_ASSERT(std::equal(bytes.begin(), end, operation.from->bytes.begin()));
    std::ranges::fill(bytes, kDone);
  }

  Faults faults_;
  Prng prng_;
  SoftNicPair pair_{test::rc_config()};
  SoftNicPair::Ends ends_ = pair_.connect({.paced = false, .work_requests = 32, .receives = 32});
  std::deque<Operation> operations_;
  std::array<std::deque<Datagram>, 2> wire_;
  size_t expected_ = 0;
  size_t completions_ = 0;
};

double any_chance(int percent) { return *rc::gen::inRange(0, percent + 1) / 100.0; }

RC_GTEST_PROP(Rc, EverythingArrivesOnceWhateverTheWireDoes, ()) {
  const Faults faults{.loss = any_chance(10),
                      .duplication = any_chance(10),
                      .reordering = any_chance(20),
                      .corruption = any_chance(5)};
  World world(faults, *rc::gen::arbitrary<uint64_t>());
  const int count = *rc::gen::inRange(1, 24);
  for (int i = 0; i < count; ++i) {
    const auto opcode = static_cast<Opcode>(*rc::gen::inRange(0, 4));
    const auto by = *rc::gen::inRange<size_t>(0, 2);
    world.add(opcode, by, *rc::gen::inRange<Bytes>(0, 30'000));
  }
  world.run();
}

}  // namespace
}  // namespace pacecar::rc_property
