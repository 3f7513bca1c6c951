// Engine: how it passes on settings of the packet I/O, the parameters and the application; its
// keeper.
#include "transport/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "tests/support/passing_nic.h"
#include "tests/support/scripted_packet_io.h"
#include "transport/base/file_descriptor.h"
#include "transport/engine/clock.h"
#include "transport/engine/soft_port.h"

namespace pacecar::engine_test {
namespace {

std::unique_ptr<Engine> open(const Params& params) {
  return Engine::open(params,
                      make_soft_port(params, std::make_unique<ScriptedPacketIo>(), clock_now()), {})
      .value();
}

FlowReport report(Engine& engine) {
  return engine.exclusively([](Messenger& messenger, Nic&, Instant) { return messenger.report(); });
}

TEST(Engine, CapsCarryTheHostsJitterAndPause) {
  const auto engine = open(Params());
  const PacketIoCaps caps = ScriptedPacketIo().caps();
  EXPECT_EQ(engine->caps().jitter, caps.jitter);
  EXPECT_EQ(engine->caps().pause, caps.pause);
}

TEST(Engine, FlowWeightIsThatOfTheParameters) {
  Params params;
  params.weight = 9;
  const auto engine = open(params);
  engine->exclusively([](Messenger& messenger, Nic&, Instant now) {
    ASSERT_TRUE(messenger.open_send(NicIdentity{1}, now));
  });
  EXPECT_EQ(report(*engine).weight, 9U);
}

TEST(Engine, NewestHintReachesTheMessenger) {
  const auto engine = open(Params());
  EXPECT_EQ(report(*engine).hint, TrafficHint());
  for (const uint32_t peers : {5U, 200U, 0U, 1U}) {
    const TrafficHint hint{.peers = peers};
    engine->expect({.peers = 77});
    engine->expect(hint);
    EXPECT_EQ(report(*engine).hint, hint);
  }
}

// A port whose provider moves an arrival while a thread prepares to sleep, without waking it.
class LateMover final : public test::PassingPort {
 public:
  LateMover(std::unique_ptr<NicPort> inner, const NicCaps& caps, std::atomic<bool>& taken)
      : PassingPort(std::move(inner), caps), taken_(taken) {}

  bool prepare_to_wait(Instant /*now*/) override {
    moved_ = true;
    return true;
  }
  size_t transmit(Instant now) override {
    if (moved_) taken_ = true;
    return PassingPort::transmit(now);
  }
  int wait_fd() const override { return silent_.get(); }

 private:
  std::atomic<bool>& taken_;
  bool moved_ = false;
  const FileDescriptor silent_{eventfd(0, EFD_CLOEXEC)};
};

TEST(Engine, KeeperTakesArrivalsMovedWhileItPreparesToSleep) {
  Params params;
  params.progress = Progress::kThread;
  auto port = make_soft_port(params, std::make_unique<ScriptedPacketIo>(), clock_now());
  NicCaps caps = port->nic().caps();
  caps.manual_progress = true;
  std::atomic<bool> taken = false;
  const auto engine =
      Engine::open(params, std::make_unique<LateMover>(std::move(port), caps, taken), {}).value();
  for (int ms = 0; ms < 60'000 && !taken; ++ms) usleep(1000);
  EXPECT_TRUE(taken);
}

class CountedPort final : public test::PassingPort {
 public:
  CountedPort(std::unique_ptr<NicPort> inner, const NicCaps& caps, std::atomic<int>& turns)
      : PassingPort(std::move(inner), caps), turns_(turns) {}

  size_t transmit(Instant now) override {
    const size_t sent = PassingPort::transmit(now);
    ++turns_;
    return sent;
  }
  Instant next_deadline() const override { return Instant::never(); }
  int wait_fd() const override { return silent_.get(); }

 private:
  std::atomic<int>& turns_;
  const FileDescriptor silent_{eventfd(0, EFD_CLOEXEC)};
};

TEST(Engine, KeeperFinishesAHurriedSendWithoutPolls) {
  auto port = make_soft_port(Params(), std::make_unique<ScriptedPacketIo>(), clock_now());
  const NicCaps caps = port->nic().caps();
  std::atomic<int> turns = 0;
  const auto engine =
      Engine::open(Params(), std::make_unique<CountedPort>(std::move(port), caps, turns), {})
          .value();
  usleep(20'000);  // the keeper is asleep by then
  const int before = turns;
  while (turns == before) engine->send_now();
  for (int ms = 0; ms < 60'000 && turns < before + 2; ++ms) usleep(1000);
  EXPECT_GE(turns, before + 2);
}

Duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Duration::from_s(time.tv_sec) + Duration::from_ns(time.tv_nsec);
}

// Threads that yield without end starve others on some schedulers.
TEST(Engine, CallersSleepOnceNothingMoves) {
  for (const Progress progress : {Progress::kInline, Progress::kThread}) {
    Params params;
    params.progress = progress;
    const auto engine = open(params);
    const Instant begin = clock_now();
    const Duration before = processor_time();
    while (clock_now() - begin < Duration::from_ms(300)) engine->progress();
    EXPECT_LT(processor_time() - before, (clock_now() - begin) / 2);
  }
}

TEST(Engine, UnknownCongestionControlIsNamed) {
  Params params;
  params.cc = "paec";
  const auto engine = Engine::open(
      params, make_soft_port(params, std::make_unique<ScriptedPacketIo>(), clock_now()), {});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(engine.error().message.find("PACECAR_CC: there is no congestion control 'paec'"),
            std::string::npos)
      << engine.error().message;
}

}  // namespace
}  // namespace pacecar::engine_test
