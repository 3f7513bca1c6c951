// Which NICs of two processes are joined, and how a handle names the NICs of a process.

#include "transport/api/network_choice.h"

#include <gmock/gmock.h>

#include "transport/api/lane_list.h"
#include "transport/api/neighbors.h"
#include "transport/base/prng.h"

namespace pacecar::network_choice_test {
namespace {

using testing::ElementsAre;

constexpr NetworkId kSoft = 1;
constexpr NetworkId kRoce = 2;
constexpr NetworkId kOfi = 3;

using Devices = std::vector<DeviceNetworks>;

TEST(NetworkChoice, RequestedDevicesAreChosenIfTheyCanBeJoined) {
  const Devices both{{{kSoft}}, {{kRoce}}};
  EXPECT_EQ(choose_devices(both, both), (DevicePair{0, 0}));
  EXPECT_EQ(choose_devices(Devices{{{kSoft, kRoce}}}, Devices{{{kRoce}}, {{kSoft}}}),
            (DevicePair{0, 0}))
      << "a NIC that speaks both";
}

TEST(NetworkChoice, OwnDeviceIsPreferredThenThePeersThenAny) {
  const Devices soft_and_roce{{{kSoft}}, {{kRoce}}};
  const Devices roce_and_soft{{{kRoce}}, {{kSoft}}};
  EXPECT_EQ(choose_devices(soft_and_roce, roce_and_soft), (DevicePair{0, 1}));
  EXPECT_EQ(choose_devices(soft_and_roce, Devices{{{kRoce}}}), (DevicePair{1, 0}));
  const Devices ofi_and_soft{{{kOfi}}, {{kSoft}}};
  EXPECT_EQ(choose_devices(ofi_and_soft, roce_and_soft), (DevicePair{1, 1}));
  EXPECT_EQ(
      choose_devices(Devices{{{kOfi}}, {{kRoce}}, {{kSoft}}}, Devices{{{4}}, {{kSoft}}, {{kRoce}}}),
      (DevicePair{1, 2}))
      << "the first of the own devices";
}

TEST(NetworkChoice, DevicesWithoutACommonNetworkAreNotJoined) {
  EXPECT_EQ(choose_devices(Devices{{{kSoft}}, {{kRoce}}}, Devices{{{kOfi}}}), std::nullopt);
  EXPECT_EQ(choose_devices(Devices{{{}}}, Devices{{{}}}), std::nullopt)
      << "devices without networks";
}

TEST(NetworkChoice, EachLaneOfABondNeedsACommonNetwork) {
  const DeviceNetworks mixed{{kRoce}, {kSoft}};
  EXPECT_TRUE(can_join(mixed, mixed));
  EXPECT_FALSE(can_join(mixed, {{kSoft}, {kRoce}})) << "the lanes are in another order";
  EXPECT_FALSE(can_join(mixed, {{kRoce}})) << "the second lane is missing";
  EXPECT_TRUE(can_join(mixed, {{kRoce, kSoft}}));
  EXPECT_EQ(choose_devices(Devices{{{kRoce}}}, Devices{mixed, {{kRoce}}}), (DevicePair{0, 1}));
  EXPECT_THAT(common_networks(mixed), ElementsAre());
  EXPECT_THAT(common_networks({{kRoce, kSoft}, {kSoft}}), ElementsAre(kSoft));
}

TEST(NetworkChoice, DifferentNamesHaveDifferentIds) {
  EXPECT_EQ(network_id("soft"), network_id("soft"));
  EXPECT_NE(network_id("ofi:tcp;ofi_rxm"), network_id("ofi:udp;ofi_rxd"));
}

NicIdentity process_identity() {
  NicIdentity identity = random_identity();
  identity.back() = 0;
  return identity;
}

NamedDevice device(std::vector<uint8_t> numbers, DeviceNetworks networks) {
  return {.numbers = std::move(numbers), .networks = std::move(networks)};
}

TEST(NamedProcess, NamesTheListeningNicsAndTheirStandIns) {
  const NicIdentity identity = process_identity();
  const std::vector<NamedDevice> devices{device({250, 3}, {{kRoce}, {kRoce, kSoft}}),
                                         device({0}, {{kRoce}}), device({1, 2}, {{kSoft}, {kSoft}}),
                                         device({4}, {{kSoft}}), device({255}, {{kOfi}})};
  const auto named = named_process(name_process(identity_of_nic(identity, 250), devices));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->identity, identity);
  EXPECT_THAT(named->devices, ElementsAre(devices[0], devices[2], devices[4]))
      << "the listening device has roce; the first device with soft stands in for soft";
}

TEST(NamedProcess, NumberOfNamedNetworksIsBounded) {
  std::vector<NamedDevice> devices{device({0}, {{100}})};
  for (uint8_t i = 1; i < 10; ++i) devices.push_back(device({i}, {{NetworkId{100} + i}}));
  const auto named = named_process(name_process(process_identity(), devices));
  ASSERT_TRUE(named);
  EXPECT_THAT(named->devices,
              testing::ElementsAreArray(devices.begin(), devices.begin() + kMaxNamedNetworks));

  DeviceNetworks eight;
  for (NetworkId id = 1; id <= kMaxLanes; ++id) eight.push_back({id});
  const std::vector<NamedDevice> diverse{device({0, 1, 2, 3, 4, 5, 6, 7}, eight)};
  const auto some = named_process(name_process(process_identity(), diverse));
  ASSERT_TRUE(some);
  EXPECT_THAT(some->devices[0].networks.back(), ElementsAre()) << "no room for the last ones";
}

// A handle can name consecutive NICs only, so other devices are left out.
TEST(NamedProcess, OnlyDevicesOfConsecutiveNumbersStandIn) {
  const std::vector<NamedDevice> devices{device({0}, {{kSoft}}),
                                         device({1, 3}, {{kRoce}, {kRoce}})};
  const auto named = named_process(name_process(process_identity(), devices));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->devices.size(), 1U);
}

// Bytes are accepted only if name_process() could have written them.
TEST(NamedProcess, ChangedBytesAreRefusedOrAreAValidName) {
  EXPECT_FALSE(named_process({}));
  const std::vector<NamedDevice> devices{device({7, 8}, {{kRoce}, {kRoce, kSoft}}),
                                         device({9}, {{kSoft}}), device({10}, {{kOfi}})};
  const bootstrap::Identity good = name_process(process_identity(), devices);
  ASSERT_TRUE(named_process(good));
  Prng random(1);
  size_t refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    bootstrap::Identity bad = good;
    for (uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      bad[15 + random.below(bad.size() - 15)] = static_cast<uint8_t>(random.next_u64());
    }
    const auto named = named_process(bad);
    if (!named) {
      ++refused;
      continue;
    }
    EXPECT_EQ(name_process(named->identity, named->devices, named->addresses), bad);
  }
  EXPECT_GT(refused, 5'000U);
}

TEST(NoLanes, TextOfTheProcessIsPackedAndMadePrintable) {
  const Blob packed = pack_no_lanes("here\n is soft");
  EXPECT_EQ(unpack_no_lanes(packed), "here? is soft");
  EXPECT_FALSE(unpack_lanes(packed));
  EXPECT_EQ(unpack_no_lanes(pack_lanes(std::vector<Blob>{{1, 2}})), std::nullopt);
  EXPECT_EQ(unpack_no_lanes({}), std::nullopt);
  EXPECT_EQ(unpack_no_lanes(Blob{0, 27, '['}), "?[") << "a peer may send anything";
  EXPECT_EQ(unpack_no_lanes(Blob(2 + kMaxProcessText)), std::nullopt);
  const std::string longest(kMaxProcessText, 'x');
  EXPECT_EQ(unpack_no_lanes(pack_no_lanes(longest + "y")), longest);
}

TEST(AddressedOffers, OfferNamesItsNic) {
  const Blob lane = address_offer(200, std::vector<uint8_t>{4, 5});
  const auto offer = addressed_offer(lane);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->nic, 200);
  EXPECT_THAT(offer->words, ElementsAre(4, 5));
  EXPECT_FALSE(addressed_offer({}));
}

TEST(NamedProcess, NamesAddressesAsFarAsThereIsRoom) {
  const std::vector<NamedDevice> devices{{{0}, {{kSoft}}}};
  std::vector<NamedAddress> addresses;
  for (uint8_t nic = 0; nic < 7; ++nic) {
    addresses.push_back({nic, {.ip = 0x0a000001U + (uint32_t{nic} << 8), .prefix = 24}});
  }
  const auto named = named_process(name_process(process_identity(), devices, addresses));
  ASSERT_TRUE(named);
  addresses.resize(5);
  EXPECT_EQ(named->addresses, addresses);
  addresses.front().subnet.prefix = 33;
  EXPECT_FALSE(named_process(name_process(process_identity(), devices, addresses)));
}

TEST(Neighbors, HaveDifferentAddressesOfOneSubnet) {
  const Subnet one{.ip = 0x0a010001, .prefix = 24};
  EXPECT_TRUE(are_neighbors(one, {.ip = 0x0a010002, .prefix = 24}));
  EXPECT_FALSE(are_neighbors(one, one)) << "another host may have it, too, as docker0";
  EXPECT_FALSE(are_neighbors(one, {.ip = 0x0a010002, .prefix = 25}));
  EXPECT_FALSE(are_neighbors(one, {.ip = 0x0a020002, .prefix = 24}));
  EXPECT_FALSE(are_neighbors({}, {}));
  EXPECT_TRUE(are_neighbors({.ip = 0x0a000000, .prefix = 31}, {.ip = 0x0a000001, .prefix = 31}));
  EXPECT_FALSE(are_neighbors({.ip = 0x0a000001, .prefix = 31}, {.ip = 0x0a000002, .prefix = 31}));
  EXPECT_EQ(ip_to_string(address_of(one)), "10.1.0.1");
}

// In a ring of three hosts each cable is a subnet: A.0-B.1, B.0-C.1, C.0-A.1.
Subnet on_cable(uint32_t cable, uint32_t end) {
  return {.ip = 0x0a000000 + (cable << 16) + end, .prefix = 24};
}

TEST(Neighbors, OfARingAreTheEndsOfTheCableBetweenThem) {
  const std::vector<NamedAddress> b{{10, on_cable(2, 1)}, {11, on_cable(1, 2)}};
  using Subnets = std::vector<std::vector<Subnet>>;
  const Subnets a{{on_cable(1, 1)}, {on_cable(3, 2)}};
  const std::vector<uint8_t> first{10};
  EXPECT_EQ(choose_neighbors(a, b, first), (NeighborLanes{0, {0}, {b[1]}}))
      << "our requested NIC with another of the peer's";
  const Subnets c{{on_cable(3, 1)}, {on_cable(2, 2)}};
  EXPECT_EQ(choose_neighbors(c, b, first), (NeighborLanes{1, {0}, {b[0]}}))
      << "another of ours with the requested one";
  const Subnets bond{{on_cable(3, 1), on_cable(2, 2)}};
  const std::vector<uint8_t> both{10, 11};
  EXPECT_EQ(choose_neighbors(bond, b, both), (NeighborLanes{0, {1}, {b[0]}}))
      << "of a bond, the member with the cable";
  EXPECT_EQ(choose_neighbors(Subnets{{on_cable(4, 1)}, {}}, b, first), std::nullopt);
}

TEST(Neighbors, TheKernelsRoutesCountOnlyBetweenOthers) {
  const auto by_own = [](const Address&, const Address&) { return true; };
  const auto elsewhere = [](const Address&, const Address&) { return false; };
  for (const auto& kernel : {+by_own, +elsewhere}) {
    EXPECT_EQ(way_between(on_cable(1, 1), on_cable(1, 2), kernel), Way::kNeighbors);
    EXPECT_EQ(way_between({}, on_cable(1, 2), kernel), Way::kNeighbors) << "unknown";
    EXPECT_EQ(way_between(on_cable(1, 1), {}, kernel), Way::kNeighbors) << "unknown";
  }
  EXPECT_EQ(way_between(on_cable(1, 1), on_cable(2, 1), by_own), Way::kRouted);
  EXPECT_EQ(way_between(on_cable(1, 1), on_cable(2, 1), elsewhere), Way::kAstray);
  EXPECT_EQ(std::max({Way::kAstray, Way::kNeighbors, Way::kRouted}), Way::kAstray);
}

TEST(Neighbors, BondsOfOneNetworkHaveALaneForEachPair) {
  const std::vector<std::vector<Subnet>> own{{on_cable(1, 1), on_cable(1, 2)}};
  const std::vector<NamedAddress> peer{{1, on_cable(1, 3)}, {2, on_cable(1, 4)}};
  EXPECT_EQ(choose_neighbors(own, peer, std::vector<uint8_t>{1, 2}),
            (NeighborLanes{0, {0, 1}, {peer[0], peer[1]}}));
}

}  // namespace
}  // namespace pacecar::network_choice_test
