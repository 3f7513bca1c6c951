// A device dies at any call of its NIC: the NIC reports this in a sentence, nothing hangs or leaks,
// and other NICs are not affected. HOSTILE_SEEDS=1:24 tries every way of dying at every call;
// without it, each call has one way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/hostile_nics.h"

namespace pacecar::test::death_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr size_t kSize = 4096;
constexpr Duration kSilence = Duration::from_ms(20);
constexpr Duration kPatience = Duration::from_ms(500);
constexpr uint64_t kWays = 24;

hostile::Death death(uint64_t call, uint64_t way) {
  constexpr std::array kPolls{hostile::Death::Polls::kNothing, hostile::Death::Polls::kFlushed,
                              hostile::Death::Polls::kError};
  return {.device = 0,
          .at_call = call,
          .error = way % 2 == 0 ? EIO : ENODEV,
          .raises_event = way / 2 % 2 == 0,
          .takes_posts = way / 4 % 2 == 0,
          .polls = kPolls[way / 8 % kPolls.size()]};
}

struct Host {
  explicit Host(uint32_t device)
      : nic(VerbsNic::open({.device = "hostile" + std::to_string(device),
                            .flows = 2,
                            .queue_pairs = 4,
                            .regions = 8,
                            .paths = 2,
                            .silence_limit = kSilence},
                           HostileNics::now())) {}

  // The NIC must have been opened.
  Result<void> prepare() {
    VerbsNic& own = **nic;
    own.set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20}, HostileNics::now());
    auto made = own.register_memory(memory.data(), kSize, Access::kRemoteAll);
    if (!made) return tl::unexpected(made.error());
    region = *made;
    auto pair = own.create_queue_pair({});
    if (!pair) return tl::unexpected(pair.error());
    end = *pair;
    return {};
  }
  Result<void> connect(const Host& peer) {
    return (*nic)->connect_queue_pair(end, (*peer.nic)->queue_pair_address(peer.end).view());
  }
  void post(const Host& peer, uint64_t count) {
    const WorkRequest request{.local = region.address,
                              .remote = peer.region.remote_address,
                              .length = 100,
                              .local_key = region.key,
                              .remote_key = peer.region.key,
                              .opcode = Opcode::kWriteWithImm};
    for (uint64_t i = 0; i < count; ++i) posted += (*nic)->post(end, {&request, 1});
  }
  void turn() {
    if (!nic) return;
    VerbsNic& own = **nic;
    const Instant now = HostileNics::now();
    own.receive(now);
    own.on_time(now);
    own.transmit(now);
    own.prepare_to_wait(now);
    std::array<Completion, 16> some;
    for (const Completion& each : std::span(some).first(own.poll(some))) {
      broken |= each.kind == CompletionKind::kBroken;
      sent += each.kind == CompletionKind::kSent ? 1 : 0;
      received += each.kind == CompletionKind::kReceived ? 1 : 0;
      failed |= each.status != CompletionStatus::kOk;
    }
  }
  // Every posted request is complete, or the queue pair is broken.
  bool settled() const { return broken || sent == posted; }

  std::vector<uint8_t> memory = std::vector<uint8_t>(kSize);  // outlives the NIC
  Result<std::unique_ptr<VerbsNic>> nic;
  MemoryRegion region;
  QueuePairId end = 0;
  uint64_t posted = 0, sent = 0, received = 0;
  bool broken = false, failed = false;
};

class VerbsDeath : public testing::Test {
 protected:
  static constexpr uint64_t kWrites = 12;

  static void expect_sentence(const Error& error) {
    EXPECT_THAT(error.message, HasSubstr("hostile0"));
    EXPECT_THAT(error.message, AnyOf(HasSubstr("look at the kernel's log"), HasSubstr("check ")));
  }
  template <typename Done>
  bool run(std::vector<Host*> hosts, Done done) {
    const Instant limit = HostileNics::now() + kPatience;
    while (!done()) {
      if (HostileNics::now() >= limit) return false;
      for (int i = 0; i < 20; ++i) hostile::turn();
      for (Host* host : hosts) host->turn();
    }
    return true;
  }
  // Opens, uses and destroys a NIC on device 0 while other NICs work.
  void live() {
    Host other(1);
    Host third(2);
    ASSERT_TRUE(other.prepare() && third.prepare());
    ASSERT_TRUE(other.connect(third) && third.connect(other));
    Host witness(1);  // the device of `other`: perhaps the same numbers
    {
      Host mortal(0);
      if (mortal.nic) {
        meet(mortal, witness, other, third);
      } else {
        expect_sentence(mortal.nic.error());
      }
    }
    other.post(third, kWrites);
    EXPECT_TRUE(
        run({&other, &third}, [&] { return other.settled() && third.received == other.posted; }))
        << third.received << " of " << other.posted;
    EXPECT_FALSE(other.broken || other.failed || third.broken || third.failed);
  }
  void meet(Host& mortal, Host& peer, Host& other, Host& third) {
    ASSERT_TRUE(peer.prepare());
    if (const auto prepared = mortal.prepare(); !prepared) return expect_sentence(prepared.error());
    const auto connected = mortal.connect(peer);
    if (!connected) return expect_sentence(connected.error());
    ASSERT_TRUE(peer.connect(mortal));
    for (int round = 0; round < 2; ++round) {
      for (Host* host : {&mortal, &other}) host->post(host == &mortal ? peer : third, kWrites / 2);
      peer.post(mortal, kWrites / 2);
      EXPECT_TRUE(run({&mortal, &peer, &other, &third},
                      [&] { return mortal.settled() && peer.settled() && other.settled(); }))
          << "round " << round << ": " << mortal.sent << ", " << peer.sent << ", " << other.sent;
    }
    for (const Host* host : {&mortal, &peer}) {
      if (!host->broken) continue;
      const std::string fault = (*host->nic)->fault(host->end);
      EXPECT_THAT(fault, AnyOf(HasSubstr("look at "), HasSubstr("check ")));
    }
    const auto flush = (*mortal.nic)->start_flush(mortal.region, mortal.memory.data());
    if (!flush) expect_sentence(flush.error());
    (*mortal.nic)->deregister_memory(mortal.region);
    (*mortal.nic)->destroy_queue_pair(mortal.end);
  }
};

TEST_F(VerbsDeath, DeathAtAnyCallAffectsNoOtherNic) {
  hostile::configure({.threaded = false, .devices = 3, .late_landing = 3, .late_completions = 3});
  hostile::plan_death({});
  live();
  ASSERT_EQ(hostile::left_over(), "");
  const uint64_t calls = hostile::calls(0);
  const auto [first, count] = hostile_seeds(1);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    for (uint64_t call = 1; call <= calls && !HasFailure(); ++call) {
      const uint64_t way = (call * 7 + seed) % kWays;
      SCOPED_TRACE("call " + std::to_string(call) + " of " + std::to_string(calls) + ", way " +
                   std::to_string(way) + ": HOSTILE_SEEDS=" + std::to_string(seed) + ":1");
      hostile::plan_death(death(call, way));
      live();
      EXPECT_EQ(hostile::left_over(), "");
    }
  }
  hostile::plan_death({});
}

}  // namespace
}  // namespace pacecar::test::death_test
