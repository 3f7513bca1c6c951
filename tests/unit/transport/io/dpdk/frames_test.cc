#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "transport/base/prng.h"
#include "transport/io/dpdk/device.h"
#include "transport/io/dpdk/known_frames.h"
#include "transport/io/frame.h"
#include "transport/wire/address.h"

namespace pacecar::frames_test {
namespace {

using testing::HasSubstr;

constexpr MacAddress kHere = {2, 0, 0, 0, 0, 1};
constexpr MacAddress kThere = {2, 0, 0, 0, 0, 2};

Address ipv4(uint8_t host) {
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, host}};
}
Address ipv6(uint8_t host) {
  return {.ip = {0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
}

// A frame with a datagram of these bytes, as the template makes it.
std::vector<uint8_t> make_frame(const FrameEnds& ends, uint8_t traffic_class,
                                const std::vector<uint8_t>& datagram) {
  const HeaderTemplate headers(ends);
  std::vector<uint8_t> frame(kMaxFrameHeaderBytes);
  headers.write(0xC003, 4791, traffic_class, datagram.size(), frame.data());
  frame.resize(headers.size());
  frame.insert(frame.end(), datagram.begin(), datagram.end());
  return frame;
}

std::optional<FrameDatagram> read(std::span<const uint8_t> frame) {
  const auto ethernet = frame::read_ethernet(frame);
  return ethernet ? read_datagram(*ethernet) : std::nullopt;
}

const std::vector<uint8_t> kDatagram = {1, 2, 3, 4, 5, 6, 7};

FrameEnds ends_of(bool is_v4, frame::Vlan vlan = std::nullopt) {
  return {.source_mac = kHere,
          .destination_mac = kThere,
          .source = is_v4 ? ipv4(1) : ipv6(1),
          .destination = is_v4 ? ipv4(2) : ipv6(2),
          .vlan = vlan};
}

TEST(Frame, FrameIsReadAsWritten) {
  for (const bool is_v4 : {true, false}) {
    for (const frame::Vlan vlan : {frame::Vlan(), frame::Vlan(100)}) {
      const auto bytes = make_frame(ends_of(is_v4, vlan), 0xBA, kDatagram);
      const auto read_back = read(bytes);
      ASSERT_TRUE(read_back) << is_v4 << vlan.has_value();
      EXPECT_TRUE(std::ranges::equal(read_back->bytes, kDatagram));
      EXPECT_EQ(read_back->source.ip, ends_of(is_v4).source.ip);
      EXPECT_EQ(read_back->destination.ip, ends_of(is_v4).destination.ip);
      EXPECT_EQ(read_back->source.port, 0xC003);
      EXPECT_EQ(read_back->destination.port, 4791);
      EXPECT_EQ(read_back->ecn, Ecn::kCapable0);
      EXPECT_EQ(read_back->fragment, kIpv4Fragment);
    }
  }
}

// Header bytes by RFC 791 and RFC 768, the checksum computed by hand.
TEST(Frame, Ipv4FrameHasTheBytesOfTheRfcs) {
  const std::vector<uint8_t> expected = {
      2,    0, 0,    0,    0,    2,    2,    0,    0,    0,  0,    1,    8, 0,  //
      0x45, 2, 0,    35,   0x50, 0x43, 0x40, 0x00, 0x40, 17, 0x66, 0x81,        //
      192,  0, 2,    1,    192,  0,    2,    2,                                 //
      0xC0, 3, 0x12, 0xB7, 0,    15,   0,    0,    1,    2,  3,    4,    5, 6, 7};
  EXPECT_EQ(make_frame(ends_of(true), 2, kDatagram), expected);
}

TEST(Frame, TagCarriesVlanAndPriority) {
  const auto bytes = make_frame(ends_of(true, 0x123), 184, kDatagram);
  EXPECT_EQ(wire::load_be16(&bytes[12]), frame::kVlan);
  EXPECT_EQ(wire::load_be16(&bytes[14]), 5 << 13 | 0x123);
}

TEST(Frame, PaddingIsNotPayload) {
  for (const bool is_v4 : {true, false}) {
    auto bytes = make_frame(ends_of(is_v4), 0, kDatagram);
    bytes.resize(bytes.size() + 20, 0xEE);
    ASSERT_TRUE(read(bytes));
    EXPECT_TRUE(std::ranges::equal(read(bytes)->bytes, kDatagram));
  }
}

TEST(Frame, CutFrameIsRefused) {
  for (const bool is_v4 : {true, false}) {
    const auto bytes = make_frame(ends_of(is_v4, 7), 0, kDatagram);
    for (size_t length = 0; length < bytes.size(); ++length) {
      const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_FALSE(read(cut)) << length;
    }
  }
}

TEST(Frame, DamagedIpv4HeaderIsRefused) {
  const auto whole = make_frame(ends_of(true), 0, kDatagram);
  for (size_t at = 14; at < 34; ++at) {
    auto bytes = whole;
    bytes[at] ^= 0x10;
    EXPECT_FALSE(read(bytes)) << at;
  }
}

TEST(Frame, FragmentsAndOtherProtocolsAreRefused) {
  auto tcp = make_frame(ends_of(false), 0, kDatagram);
  tcp[14 + 6] = 6;
  EXPECT_FALSE(read(tcp));
  auto fragment = make_frame(ends_of(true), 0, kDatagram);
  fragment[14 + 6] = 0x20;  // more fragments; "don't fragment" is gone
  fragment[14 + 10] = 0;
  fragment[14 + 11] = 0;
  const uint16_t sum = static_cast<uint16_t>(
      ~frame::fold(frame::sum16(std::span<const uint8_t>(fragment).subspan(14, 20))));
  frame::put16(sum, &fragment[14 + 10]);
  EXPECT_FALSE(read(fragment));
}

// The checksums by RFC 768 and RFC 8200, computed by hand.
TEST(Frame, WrongUdpChecksumIsDetected) {
  for (const auto& [is_v4, checksum] : {std::pair(true, 0x9905), std::pair(false, 0xC194)}) {
    for (const frame::Vlan vlan : {frame::Vlan(), frame::Vlan(7)}) {
      auto bytes = make_frame(ends_of(is_v4, vlan), 0, kDatagram);
      EXPECT_TRUE(has_right_udp_checksum(bytes)) << "no checksum is right";
      const size_t udp_at = bytes.size() - kDatagram.size() - 8;
      frame::put16(static_cast<size_t>(checksum), &bytes[udp_at + 6]);
      EXPECT_TRUE(has_right_udp_checksum(bytes)) << is_v4;
      bytes.insert(bytes.end(), 3, 0xFF);  // padding does not belong to the datagram
      EXPECT_TRUE(has_right_udp_checksum(bytes)) << is_v4;
      for (size_t at = udp_at + 8; at < udp_at + 8 + kDatagram.size(); ++at) {
        auto damaged = bytes;
        damaged[at] ^= 0x40;
        EXPECT_FALSE(has_right_udp_checksum(damaged)) << at;
      }
    }
  }
  EXPECT_TRUE(has_right_udp_checksum({})) << "a frame without a datagram is right";
}

std::vector<uint8_t> long_frame(const FrameEnds& ends, Prng& prng) {
  std::vector<uint8_t> datagram(50 + prng.below(100));
  for (uint8_t& byte : datagram) byte = static_cast<uint8_t>(prng.next_u64());
  return make_frame(ends, static_cast<uint8_t>(prng.below(256)), datagram);
}

// Returns whether the frame was recognized.
bool expect_read_alike(const KnownFrames& known, const std::vector<uint8_t>& frame) {
  FrameDatagram quick;
  if (!known.read(frame, quick)) return false;
  const auto whole = read(frame);
  EXPECT_TRUE(whole.has_value());
  if (!whole) return true;
  EXPECT_EQ(quick.bytes.data(), whole->bytes.data());
  EXPECT_EQ(quick.bytes.size(), whole->bytes.size());
  EXPECT_EQ(quick.source, whole->source);
  EXPECT_EQ(quick.fragment, whole->fragment);
  EXPECT_EQ(quick.ecn, whole->ecn);
  return true;
}

TEST(KnownFrames, FramesOfAKnownPeerAreRecognized) {
  Prng prng(1);
  for (const bool is_v4 : {true, false}) {
    KnownFrames known;
    const FrameEnds ends = ends_of(is_v4);
    const auto first = long_frame(ends, prng);
    EXPECT_FALSE(expect_read_alike(known, first));
    known.remember(first, *read(first));
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(expect_read_alike(known, long_frame(ends, prng)));
    std::array<FrameEnds, 4> others = {ends, ends, ends, ends};
    others[0].source.ip[15] = 77;
    others[1].destination.ip[15] = 77;
    others[2].destination_mac[5] = 77;
    others[3].vlan = 100;
    for (const FrameEnds& other : others) {
      EXPECT_FALSE(expect_read_alike(known, long_frame(other, prng)));
    }
  }
}

// Every recognized frame must also be valid for the full parser, with the same result.
TEST(KnownFrames, KnownFramesAreReadAsByTheFullParser) {
  Prng prng(2);
  KnownFrames known;
  size_t recognized = 0;
  for (int i = 0; i < 200'000; ++i) {
    FrameEnds ends = ends_of(prng.chance(0.5), prng.chance(0.5) ? frame::Vlan(9) : std::nullopt);
    ends.source_mac[5] = static_cast<uint8_t>(prng.below(4));
    auto frame = long_frame(ends, prng);
    for (uint64_t changes = prng.below(3); changes > 0; --changes) {
      frame[prng.below(kMaxFrameHeaderBytes)] ^= static_cast<uint8_t>(1U << prng.below(8));
    }
    if (prng.chance(0.1)) frame.resize(prng.below(frame.size()));
    recognized += expect_read_alike(known, frame) ? 1 : 0;
    if (const auto whole = read(frame)) known.remember(frame, *whole);
  }
  EXPECT_GT(recognized, 20'000U);
}

TEST(DpdkDevice, OwnArgumentsAreParsedAndOthersPassedOn) {
  const auto device = parse_dpdk_device(
      "net_vhost0",
      "iface=s,address=192.0.2.1/25,gateway=192.0.2.2,vlan=7,mtu=4000,queues=1,bootstrap=eth0");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->arguments, "iface=s,queues=1");
  EXPECT_EQ(device->address, ipv4(1));
  EXPECT_EQ(device->link_bits, 25);
  EXPECT_EQ(device->gateway, ipv4(2));
  EXPECT_EQ(device->vlan, 7);
  EXPECT_EQ(device->mtu, 4000U);
  EXPECT_EQ(device->bootstrap, "eth0");
  EXPECT_EQ(device->driver(), "net_vhost");
  EXPECT_EQ(device->argument("queues"), "1");
  EXPECT_EQ(device->argument("vlan"), std::nullopt);
  EXPECT_FALSE(device->is_pci());
  EXPECT_TRUE(parse_dpdk_device("0000:3b:00.0", "address=2001:db8::1")->is_pci());
}

TEST(DpdkDevice, HostsOutsideOfThePrefixAreBehindTheGateway) {
  const auto device = parse_dpdk_device("net_ring0", "address=192.0.2.1/25,gateway=192.0.2.2");
  EXPECT_EQ(device->next_hop(ipv4(1), ipv4(127)), ipv4(127));
  EXPECT_EQ(device->next_hop(ipv4(1), ipv4(128)), ipv4(2));
  const auto alone = parse_dpdk_device("net_ring0", "address=192.0.2.1,gateway=192.0.2.2");
  EXPECT_EQ(alone->next_hop(ipv4(1), ipv4(3)), ipv4(2));
  EXPECT_EQ(alone->next_hop(ipv4(1), ipv4(1)), ipv4(1)) << "itself";
  const auto plain = parse_dpdk_device("net_ring0", "address=192.0.2.1/25");
  EXPECT_EQ(plain->next_hop(ipv4(1), ipv4(200)), ipv4(200));
  const auto ipv6 = parse_dpdk_device("net_ring0", "gateway=2001:db8::2");
  const Address link_local{.ip = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}};
  EXPECT_EQ(ipv6->next_hop(*ipv6->gateway, link_local), link_local);
}

TEST(DpdkDevice, InvalidArgumentsAreRefused) {
  for (const char* bad : {"address=", "address=192.0.2", "address=fe80::1%lo", "address=192.0.2.1/",
                          "address=192.0.2.1/33", "address=2001:db8::1/129", "gateway=192.0.2.1/24",
                          "gateway=x", "vlan=0", "vlan=4095", "vlan=x", "mtu=100", "mtu=9000x"}) {
    const auto device = parse_dpdk_device("net_ring0", bad);
    ASSERT_FALSE(device) << bad;
    EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(device.error().message, HasSubstr(bad));
  }
  EXPECT_FALSE(parse_dpdk_device("", ""));
}

}  // namespace
}  // namespace pacecar::frames_test
