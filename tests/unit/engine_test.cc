// Engine: what it is told by its packet I/O, its parameters and the application, and passes on.
#include "transport/engine/engine.h"

#include <gtest/gtest.h>

#include "tests/support/scripted_packet_io.h"
#include "transport/engine/clock.h"
#include "transport/engine/soft_port.h"

namespace pacecar {
namespace {

std::unique_ptr<Engine> open(const Params& params) {
  return Engine::open(params,
                      make_soft_port(params, std::make_unique<ScriptedPacketIo>(), clock_now()), {})
      .value();
}

FlowReport report(Engine& engine) {
  return engine.exclusively([](Messenger& messenger, Nic&, Instant) { return messenger.report(); });
}

TEST(Engine, NicKnowsWhatKindOfHostItIsOn) {
  const auto engine = open(Params());
  const PacketIoCaps caps = ScriptedPacketIo().caps();
  EXPECT_EQ(engine->caps().jitter, caps.jitter);
  EXPECT_EQ(engine->caps().pause, caps.pause);
}

TEST(Engine, WeightIsThatOfTheParameters) {
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
    const TrafficHint hint{.peers = peers, .connections_per_peer = 3};
    engine->expect({.peers = 77});
    engine->expect(hint);
    EXPECT_EQ(report(*engine).hint, hint);
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
}  // namespace pacecar
