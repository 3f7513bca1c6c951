// Packets of different sizes over a slow link: the longer serialization of a long packet is no
// queue.
#include "cc/pace/empty_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cc/pace/receiver.h"

namespace pacecar::empty_path_test {
namespace {

constexpr Duration kMemory = Duration::from_ms(100);
constexpr Bytes kMtu = 8192;
constexpr size_t kSmall = 0;
constexpr size_t kFull = 3;

TEST(CcPaceEmptyPath, SizeClassesAreHalvesOfTheMtu) {
  EXPECT_EQ(EmptyPath::size_class(0, kMtu), 0U);
  EXPECT_EQ(EmptyPath::size_class(kMtu / 4 - 1, kMtu), 0U);
  EXPECT_EQ(EmptyPath::size_class(kMtu / 4, kMtu), 1U);
  EXPECT_EQ(EmptyPath::size_class(kMtu / 2 - 1, kMtu), 1U);
  EXPECT_EQ(EmptyPath::size_class(kMtu / 2, kMtu), 2U);
  EXPECT_EQ(EmptyPath::size_class(kMtu - 1, kMtu), 2U);
  EXPECT_EQ(EmptyPath::size_class(kMtu, kMtu), 3U);
  EXPECT_EQ(EmptyPath::size_class(kMtu * 8, kMtu), 3U);
}

TEST(CcPaceEmptyPath, DelaysAreComparedWithinOneSizeClass) {
  EmptyPath path;
  const Instant now = Instant::from_ns(1'000'000'000);
  EXPECT_EQ(path.excess(now, 1000, kSmall, kMemory), Duration());
  EXPECT_EQ(path.excess(now, 330'000, kFull, kMemory), Duration())
      << "the first full packet is its own reference";
  EXPECT_EQ(path.excess(now, 331'000, kFull, kMemory), Duration::from_us(1));
  EXPECT_EQ(path.excess(now, 3000, kSmall, kMemory), Duration::from_us(2));
  EXPECT_EQ(path.excess(now, 329'000, kFull, kMemory), Duration());
  EXPECT_EQ(path.excess(now, 331'000, kFull, kMemory), Duration::from_us(2));
}

TEST(CcPaceEmptyPath, LeastDelayIsForgottenAfterTwoPeriods) {
  EmptyPath path;
  Instant now = Instant::from_ns(1'000'000'000);
  path.excess(now, 1000, kFull, kMemory);
  now = now + kMemory / 2;
  path.excess(now, 5000, kFull, kMemory);
  now = now + kMemory / 2;
  EXPECT_EQ(path.excess(now, 4000, kFull, kMemory), Duration::from_us(3))
      << "the least of the last period still counts";
  now = now + kMemory;
  EXPECT_EQ(path.excess(now, 6000, kFull, kMemory), Duration::from_us(2));
}

TEST(CcPaceEmptyPath, TransitTimesWrapAt32Bits) {
  EmptyPath path;
  const Instant now = Instant::from_ns(1'000'000'000);
  path.excess(now, UINT32_MAX - 499, kFull, kMemory);
  EXPECT_EQ(path.excess(now, 500, kFull, kMemory), Duration::from_us(1));
  EXPECT_EQ(path.excess(now, UINT32_MAX - 999, kFull, kMemory), Duration());
}

// As the kernel holds packets for up to 3 s while nobody answers ARP, such as on a cut link.
TEST(CcPaceEmptyPath, APacketThatWaitedFor3SecondsIsLateAndNotEarly) {
  EmptyPath path;
  const Instant now = Instant::from_ns(1'000'000'000);
  path.excess(now, 1000, kFull, kMemory);
  EXPECT_EQ(path.excess(now, 3'000'001'000, kFull, kMemory), Duration::from_s(3));
  EXPECT_EQ(path.excess(now, 1000, kFull, kMemory), Duration());
}

// Messages one after another, each announced by a small packet, over a slow link of unknown rate.
// The sender keeps to its grants.
class AnnouncedMessages {
 public:
  AnnouncedMessages() {
    receiver_.add_flow(now_, 0);
    receiver_.on_posted(now_, 0, Bytes{1} << 40);
  }

  // The share of the link that the messages got in this time.
  double share_of(Duration span) {
    const Instant end = now_ + span;
    Bytes bytes = 0;
    const Instant began = now_;
    while (now_ < end) {
      bytes += message();
      now_ = now_ + Duration::from_us(400);  // the application does something else
    }
    const double given = static_cast<double>(kLink.bytes_in(now_ - began));
    return static_cast<double>(bytes) / given;
  }

 private:
  static constexpr Rate kLink = Rate::from_bps(200'000'000);
  static constexpr Duration kWay = Duration::from_us(50);
  static constexpr int kPackets = 32;

  Bytes message() {
    send(48);
    const Demand demand{
        .usable = Rate::from_gbps(10), .wanted = arrived_ + kPackets * kMtu, .epoch = ++epoch_};
    receiver_.on_demand(now_, 0, demand);
    for (int packet = 0; packet < kPackets; ++packet) send(kMtu);
    receiver_.on_demand(now_, 0, {.wanted = arrived_, .epoch = ++epoch_});
    return kPackets * kMtu;
  }

  // A packet queues for the link; a window of 2 ms limits the queue.
  void send(Bytes payload) {
    const Bytes wire = payload + 66;
    sent_ = std::max({sent_ + granted_.time_for(wire), now_ - Duration::from_ms(2)});
    free_ = std::max(free_, sent_) + kLink.time_for(wire);
    now_ = std::max(now_, free_ + kWay);
    arrived_ += payload;
    receiver_.on_arrival(
        now_, 0, payload,
        {static_cast<uint32_t>((free_ + kWay - sent_).ns()), static_cast<uint32_t>(payload)});
    std::array<GrantUpdate, 4> words;
    for (size_t count = receiver_.poll_grants(now_, words); count > 0; --count) {
      granted_ = words[count - 1].grant.rate;
    }
  }

  // The environment of a host with UDP sockets on a link of unknown rate.
  PaceReceiver receiver_{{.line_rate = Rate::from_gbps(100),
                          .mtu = kMtu,
                          .overhead = 66,
                          .burst_bytes = 65536,
                          .base_rtt = Duration::from_us(100),
                          .jitter = Duration::from_us(100),
                          .first_rate = Rate::from_gbps(10)},
                         1};
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant sent_ = now_;
  Instant free_ = now_;
  Bytes arrived_ = 0;
  uint16_t epoch_ = 0;
  Rate granted_ = Rate::from_gbps(10);
};

TEST(CcPaceEmptyPath, SingleAnnouncedMessagesFillASlowLink) {
  AnnouncedMessages messages;
  messages.share_of(Duration::from_s(1));  // the receiver learns the rate
  EXPECT_GT(messages.share_of(Duration::from_s(1)), 0.8);
}

}  // namespace
}  // namespace pacecar::empty_path_test
