// The live switch on a clock of the test: which frames it forwards, and what the simulated switch
// inside it does to real frames. The tests check counts, not times of this machine.
#include "bench/switch/live_switch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/frames.h"
#include "transport/base/prng.h"
#include "transport/io/switch_traces.h"

namespace pacecar::test::live_switch_test {
namespace {

constexpr Instant kBegin = Instant::from_ns(1'000'000'000'000);
constexpr Bytes kWireBytes = 1000;

Instant at_us(int64_t us) { return kBegin + Duration::from_us(us); }

// Hosts 1, 2, ... are at ports 0, 1, ...
class World {
 public:
  World(std::vector<Rate> rates, const LiveSwitchConfig& config) : wires_(rates.size()) {
    std::vector<std::unique_ptr<FramePort>> ports;
    for (size_t i = 0; i < rates.size(); ++i) {
      ports.push_back(std::make_unique<ScriptedFramePort>("port" + std::to_string(i), wires_[i]));
    }
    auto made = LiveSwitch::create(std::move(ports), rates, config, kBegin);
    if (!made) throw std::runtime_error(made.error().message);
    live_ = std::move(*made);
  }

  // Every host sends a frame, so that the switch learns its port; the flooded copies are dropped.
  void introduce() {
    for (size_t i = 0; i < wires_.size(); ++i) {
      const auto host = static_cast<uint8_t>(i + 1);
      wires_[i].put(kBegin, plain_frame({.from = host, .to = 0xFE, .traffic_class = 0}, 84));
    }
    run(at_us(1000), Duration::from_us(1));
    for (Wire& wire : wires_) wire.from_switch.clear();
  }

  // Polls every `step` until `until`.
  void run(Instant until, Duration step) {
    for (Instant now = live_->now(); now < until;) {
      now = std::min(now + step, until);
      while (!live_->poll(now)) {
      }
    }
  }
  Wire& wire(size_t port) { return wires_[port]; }
  LiveSwitch& live() { return *live_; }

 private:
  std::deque<Wire> wires_;
  std::unique_ptr<LiveSwitch> live_;
};

std::vector<Rate> rates(size_t ports, uint64_t mbps) {
  return std::vector<Rate>(ports, Rate::from_bps(mbps * 1'000'000));
}

// Port 0 sends fast, port 1 is slow.
std::vector<Rate> funnel() { return {Rate::from_gbps(100), Rate::from_bps(100'000'000)}; }

LiveSwitchConfig config_with(Bytes buffer) {
  LiveSwitchConfig config;
  config.switches.buffer_bytes = buffer;
  return config;
}

constexpr Instant kStart = kBegin + Duration::from_ms(2);  // after introduce()

bool ip_checksum_is_right(const Frame& frame) {
  return frame::fold(frame::sum16(std::span(frame).subspan(14, 20))) == 0xFFFF;
}

size_t marked_in(const std::vector<Frame>& frames) {
  return static_cast<size_t>(std::count_if(frames.begin(), frames.end(), [](const Frame& frame) {
    return read_headers(frame).ecn() == Ecn::kCongestion;
  }));
}

TEST(LiveSwitch, LearnsThePortsOfAddressesAndFloodsUnknownOnes) {
  World world(rates(3, 1000), config_with(1 << 20));
  world.wire(0).put(at_us(1), plain_frame({.from = 1, .to = 2}, kWireBytes));
  world.run(at_us(100), Duration::from_us(1));
  EXPECT_EQ(world.wire(0).from_switch.size(), 0U);
  EXPECT_EQ(world.wire(1).from_switch.size(), 1U);
  EXPECT_EQ(world.wire(2).from_switch.size(), 1U);
  const Frame answer = plain_frame({.from = 2, .to = 1}, kWireBytes);
  world.wire(1).put(at_us(101), answer);
  world.run(at_us(200), Duration::from_us(1));
  EXPECT_EQ(world.wire(0).from_switch, std::vector<Frame>{answer});
  EXPECT_EQ(world.wire(2).from_switch.size(), 1U);
  // A host that has moved is found at its new port, and no frame leaves at its port of arrival.
  world.wire(2).put(at_us(201), plain_frame({.from = 1, .to = 1}, kWireBytes));
  world.wire(1).put(at_us(250), answer);
  world.run(at_us(400), Duration::from_us(1));
  EXPECT_EQ(world.wire(0).from_switch.size(), 1U);
  EXPECT_EQ(world.wire(2).from_switch.size(), 2U);
}

TEST(LiveSwitch, BroadcastGoesToEveryOtherPort) {
  World world(rates(4, 1000), config_with(1 << 20));
  Frame frame = plain_frame({.from = 1}, kWireBytes);
  std::fill_n(frame.begin(), 6, 0xFF);
  world.wire(0).put(at_us(1), frame);
  world.run(at_us(100), Duration::from_us(10));
  EXPECT_TRUE(world.wire(0).from_switch.empty());
  for (size_t port = 1; port < 4; ++port) {
    EXPECT_EQ(world.wire(port).from_switch, std::vector<Frame>{frame});
  }
}

TEST(LiveSwitch, LatePollsDoNotChangeTheRateOfAPort) {
  for (const int64_t step_us : {1, 97, 20'000}) {
    World world(funnel(), config_with(1 << 30));
    world.introduce();
    constexpr size_t kFrames = 2000;  // 160 ms at 100 Mb/s
    for (size_t i = 0; i < kFrames; ++i) {
      world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
    }
    world.run(kStart + Duration::from_ms(100), Duration::from_us(step_us));
    // 100 Mb/s for 100 ms, less the way through the switch.
    EXPECT_NEAR(static_cast<double>(world.wire(1).from_switch.size()), 1250, 2);
    world.run(kStart + Duration::from_ms(200), Duration::from_us(step_us));
    EXPECT_EQ(world.wire(1).from_switch.size(), kFrames);
  }
}

TEST(LiveSwitch, AFrameTakesTwiceTheDelayAndItsTimeOnBothCables) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.delay = Duration::from_us(50);
  World world(rates(2, 1000), config);
  world.introduce();
  world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  const Instant due = kStart + Duration::from_us(2 * 50 + 2 * 8);
  world.run(due - Duration::from_ns(1), Duration::from_us(1));
  EXPECT_TRUE(world.wire(1).from_switch.empty());
  EXPECT_EQ(world.live().next_deadline(), due);
  world.run(due, Duration::from_us(1));
  EXPECT_EQ(world.wire(1).from_switch.size(), 1U);
}

// A burst that arrives faster than it leaves: the n-th frame sees n frames, itself included.
TEST(LiveSwitch, MarkingBeginsAtTheConfiguredQueueLength) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.switches.ecn.kind = EcnConfig::Kind::kStep;
  config.switches.ecn.low = 20 * kWireBytes;
  World world(funnel(), config);
  world.introduce();
  for (size_t i = 0; i < 50; ++i) {
    world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  world.run(kStart + Duration::from_ms(20), Duration::from_ms(7));
  const auto& sent = world.wire(1).from_switch;
  ASSERT_EQ(sent.size(), 50U);
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(read_headers(sent[i]).ecn(), i < 19 ? Ecn::kCapable0 : Ecn::kCongestion) << i;
    EXPECT_TRUE(ip_checksum_is_right(sent[i]));
  }
  EXPECT_EQ(world.live().take_counts(1).egress.marked, 31U);
}

TEST(LiveSwitch, FramesWithoutEcnAreNotMarked) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.switches.ecn.kind = EcnConfig::Kind::kStep;
  World world(funnel(), config);
  world.introduce();
  world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2, .traffic_class = 0}, kWireBytes));
  world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2, .traffic_class = 1}, kWireBytes));
  world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2, .traffic_class = 3}, kWireBytes));
  const Frame ipv6 = udp_frame({.from = 1, .to = 2, .ipv6 = true}, Frame(900));
  world.wire(0).put(kStart, ipv6);
  world.run(kStart + Duration::from_ms(2), Duration::from_ms(1));
  ASSERT_EQ(world.wire(1).from_switch.size(), 4U);
  EXPECT_EQ(marked_in({world.wire(1).from_switch[0]}), 0U);
  EXPECT_EQ(marked_in(world.wire(1).from_switch), 3U);
  EXPECT_EQ(world.live().take_counts(1).egress.marked, 2U);
  Frame marked_ipv6 = ipv6;
  marked_ipv6[15] |= 0x30;
  EXPECT_EQ(world.wire(1).from_switch[3], marked_ipv6);
}

TEST(LiveSwitch, FullBufferDropsFrames) {
  World world(funnel(), config_with(30 * kWireBytes));
  world.introduce();
  for (size_t i = 0; i < 100; ++i) {
    world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  world.run(kStart + Duration::from_ms(20), Duration::from_ms(3));
  EXPECT_EQ(world.wire(1).from_switch.size(), 31U);  // one was being sent
  const PortCounts counts = world.live().take_counts(1);
  EXPECT_EQ(counts.egress.dropped, 69U);
  EXPECT_EQ(counts.egress.queue_max_bytes, 31 * kWireBytes);
}

TEST(LiveSwitch, FlowControlHoldsFramesAtTheSendersNicAndDropsNone) {
  LiveSwitchConfig config = config_with(40 * kWireBytes);
  config.switches.pfc.enabled = true;
  World world(funnel(), config);
  world.introduce();
  for (size_t i = 0; i < 1000; ++i) {
    world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  world.run(kStart + Duration::from_ms(200), Duration::from_ms(1));
  EXPECT_EQ(world.wire(1).from_switch.size(), 1000U);
  EXPECT_EQ(world.live().counters().all_dropped(), 0U);
  EXPECT_GT(world.live().counters().pauses, 0U);
  EXPECT_GT(world.live().take_counts(0).paused, Duration::from_ms(50));
}

TEST(LiveSwitch, FullNicQueueDropsAndCountsFrames) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.nic_bytes = 10 * kWireBytes;
  World world(rates(2, 100), config);
  world.introduce();
  for (size_t i = 0; i < 40; ++i) {
    world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  world.run(kStart + Duration::from_ms(20), Duration::from_ms(1));
  EXPECT_EQ(world.wire(1).from_switch.size(), 10U);
  EXPECT_EQ(world.live().take_counts(0).nic_dropped, 30U);
}

TEST(LiveSwitch, LosesTheConfiguredShare) {
  LiveSwitchConfig config = config_with(1 << 30);
  config.loss = 0.1;
  World world(rates(2, 10'000), config);
  world.introduce();
  constexpr size_t kFrames = 10'000;
  for (size_t i = 0; i < kFrames; ++i) {
    world.wire(0).put(kStart + Duration::from_us(static_cast<int64_t>(i)),
                      plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  world.run(kStart + Duration::from_ms(20), Duration::from_us(50));
  // Five standard deviations of 30.
  EXPECT_NEAR(static_cast<double>(world.wire(1).from_switch.size()), 9000, 150);
}

TEST(LiveSwitch, ControlFramesOvertakeWaitingData) {
  World world(funnel(), config_with(1 << 20));
  world.introduce();
  for (size_t i = 0; i < 10; ++i) {
    world.wire(0).put(kStart, plain_frame({.from = 1, .to = 2}, kWireBytes));
  }
  const Frame control = plain_frame({.from = 1, .to = 2, .traffic_class = 184}, 100);
  world.wire(0).put(kStart, control);
  world.run(kStart + Duration::from_ms(2), Duration::from_us(100));
  ASSERT_EQ(world.wire(1).from_switch.size(), 11U);
  EXPECT_EQ(world.wire(1).from_switch[1], control);  // behind the frame that was being sent
}

TEST(LiveSwitch, TrimsPacecarsDataAndDropsTheRest) {
  for (const bool ipv6 : {false, true}) {
    LiveSwitchConfig config = config_with(1 << 20);
    config.switches.queue_bytes = 12'000;
    config.switches.trim_tail_at_random = false;
    config.switches.trimming = true;
    World world(funnel(), config);
    world.introduce();
    const FrameSpec spec{.from = 1, .to = 2, .ipv6 = ipv6};
    for (uint32_t psn = 0; psn < 20; ++psn) world.wire(0).put(kStart, data_frame(spec, psn, 1000));
    for (size_t i = 0; i < 5; ++i) world.wire(0).put(kStart, udp_frame(spec, Frame(1044)));
    world.run(kStart + Duration::from_ms(20), Duration::from_ms(1));
    const PortCounts counts = world.live().take_counts(1);
    EXPECT_EQ(counts.egress.dropped, 5U);
    EXPECT_EQ(counts.egress.trimmed, 10U);
    size_t trimmed = 0;
    for (const Frame& frame : world.wire(1).from_switch) {
      const FrameHeaders headers = read_headers(frame);
      ASSERT_EQ(headers.end, frame.size());  // the lengths in the headers fit the frame
      const auto datagram = std::span(frame).subspan(headers.udp_at + 8);
      wire::DataHeader header;
      if (!wire::decode_trimmed(datagram, header)) continue;
      EXPECT_EQ(header.psn, 10 + trimmed++);
      EXPECT_EQ(datagram.size(), wire::kDataHeaderBytes);
      EXPECT_TRUE(ipv6 || ip_checksum_is_right(frame));
      // Over pseudo header and datagram, with its checksum, the sum is 0.
      const size_t addresses_at = ipv6 ? 22 : 26;
      const auto pseudo = frame::sum16(std::span(frame).subspan(addresses_at, ipv6 ? 32 : 8),
                                       static_cast<uint32_t>(17 + 8 + datagram.size()));
      EXPECT_EQ(frame::fold(frame::sum16(std::span(frame).subspan(headers.udp_at), pseudo)),
                0xFFFF);
    }
    EXPECT_EQ(trimmed, 10U);
  }
}

TEST(LiveSwitch, StampsPacecarsDataWithTelemetry) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.switches.telemetry = true;
  World world(funnel(), config);
  world.introduce();
  for (const bool ipv6 : {false, true}) {
    const FrameSpec spec{.from = 1, .to = 2, .ipv6 = ipv6};
    world.wire(1).from_switch.clear();
    const Frame first = data_frame(spec, 1, 1000);
    world.wire(0).put(world.live().now(), first);
    world.wire(0).put(world.live().now(), data_frame(spec, 2, 1000));
    world.wire(0).put(world.live().now(), udp_frame(spec, Frame(1000)));
    world.run(world.live().now() + Duration::from_ms(2), Duration::from_us(100));
    ASSERT_EQ(world.wire(1).from_switch.size(), 3U);
    EXPECT_EQ(world.wire(1).from_switch[2], udp_frame(spec, Frame(1000)));  // not of Pacecar
    const Frame& stamped = world.wire(1).from_switch[0];
    const FrameHeaders headers = read_headers(stamped);
    ASSERT_EQ(headers.end, stamped.size());
    std::vector<RxPacket> packets = {{.bytes = std::span(stamped).subspan(headers.udp_at + 8)}};
    SwitchTraces traces;
    traces.read(packets);
    EXPECT_TRUE(std::ranges::equal(packets[0].bytes, std::span(first).subspan(headers.udp_at + 8)));
    ASSERT_EQ(packets[0].telemetry.size(), 1U);
    EXPECT_EQ(packets[0].telemetry[0].rate_mbps, 100U);
    // The second packet waited behind the first, and perhaps the third did.
    EXPECT_GE(packets[0].telemetry[0].queue_bytes, first.size() + 24);
  }
}

TEST(LiveSwitch, LatePollsDoNotChangeMarksAndDrops) {
  std::vector<std::vector<Frame>> results;
  for (const int64_t step_us : {10, 3000}) {
    LiveSwitchConfig config = config_with(60 * kWireBytes);
    config.switches.ecn = {.kind = EcnConfig::Kind::kRed,
                           .low = 5 * kWireBytes,
                           .high = 50 * kWireBytes,
                           .max_probability = 0.5};
    World world(rates(3, 100), config);
    world.introduce();
    for (size_t i = 0; i < 500; ++i) {
      const auto time = kStart + Duration::from_us(static_cast<int64_t>(i) * 70);
      const auto host = static_cast<uint8_t>(1 + i % 2);
      world.wire(host - 1U).put(time, plain_frame({.from = host, .to = 3}, kWireBytes));
    }
    world.run(kStart + Duration::from_ms(60), Duration::from_us(step_us));
    EXPECT_GT(marked_in(world.wire(2).from_switch), 0U);
    EXPECT_GT(world.live().take_counts(2).egress.dropped, 0U);
    EXPECT_EQ(world.live().entry_lateness().max(), 0U);
    EXPECT_LE(world.live().lateness().max(), static_cast<uint64_t>(step_us) * 1010);
    results.push_back(world.wire(2).from_switch);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(LiveSwitch, CarriesFramesOfAnyBytesAndReadsNothingBehindThem) {
  LiveSwitchConfig config = config_with(1 << 20);
  config.switches.ecn.kind = EcnConfig::Kind::kStep;
  config.switches.trimming = true;
  config.switches.telemetry = true;
  World world(rates(2, 10'000), config);
  world.introduce();
  Prng random(3);
  constexpr size_t kFrames = 5000;
  for (size_t i = 0; i < kFrames; ++i) {
    const FrameSpec spec{.from = 1, .to = 2, .ipv6 = random.chance(0.5)};
    Frame frame = data_frame(spec, 1, random.below(200));
    frame.resize(kEthernetBytes + random.below(frame.size() - kEthernetBytes + 1));
    for (int flips = 0; flips < 4 && frame.size() > kEthernetBytes; ++flips) {
      const size_t at = kEthernetBytes - 2 + random.below(frame.size() - kEthernetBytes + 2);
      frame[at] = static_cast<uint8_t>(random.next_u64());
    }
    world.wire(0).put(kStart + Duration::from_us(static_cast<int64_t>(i)), frame);
  }
  world.run(kStart + Duration::from_ms(10), Duration::from_us(100));
  EXPECT_EQ(world.wire(1).from_switch.size(), kFrames);
}

TEST(LiveSwitch, RefusesAConfigurationWithoutABuffer) {
  LiveSwitchConfig config;  // no bounds
  Wire wire;
  std::vector<std::unique_ptr<FramePort>> ports;
  ports.push_back(std::make_unique<ScriptedFramePort>("a", wire));
  ports.push_back(std::make_unique<ScriptedFramePort>("b", wire));
  const auto made = LiveSwitch::create(std::move(ports), rates(2, 100), config, kBegin);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("buffer"), std::string::npos);
}

}  // namespace
}  // namespace pacecar::test::live_switch_test
