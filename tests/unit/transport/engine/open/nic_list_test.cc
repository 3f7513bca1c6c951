#include "transport/engine/open/nic_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pacecar::nic_list_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

NicCandidate soft(std::string device, bool usable = true) {
  const bool loopback = device == "lo";
  return {.device = std::move(device), .usable = usable, .loopback = loopback};
}

NicCandidate rdma(std::string device, bool usable = true) {
  return {.kind = NicKind::kVerbs, .device = std::move(device), .usable = usable};
}

const std::vector<NicCandidate> kMachine{soft("lo"), soft("eth0"), soft("eth1"),
                                         soft("down0", false)};
const std::vector<NicCandidate> kRdmaMachine{rdma("mlx5_0"), rdma("mlx5_1"), rdma("mlx5_2", false),
                                             soft("lo"), soft("eth0")};

std::vector<std::string> chosen(std::string_view list,
                                const std::vector<NicCandidate>& machine = kMachine) {
  const auto nics = choose_nics(list, machine);
  if (!nics) return {"error: " + nics.error().message};
  std::vector<std::string> names;
  for (const NicGroup& group : *nics) {
    std::string& name = names.emplace_back();
    for (const NicCandidate& nic : group) name += (name.empty() ? "" : "+") + nic.name();
  }
  return names;
}

Error error(std::string_view list, const std::vector<NicCandidate>& machine = kMachine) {
  const auto nics = choose_nics(list, machine);
  EXPECT_FALSE(nics);
  return nics ? Error{} : nics.error();
}

TEST(NicList, EmptyListMeansEveryUsableInterface) {
  EXPECT_THAT(chosen(""), ElementsAre("soft:udp:eth0", "soft:udp:eth1"));
}

TEST(NicList, SecludedInterfacesAreUsedIfTheyAreNamedOrThereIsNoOther) {
  NicCandidate docker = soft("docker0");
  docker.secluded = true;
  EXPECT_THAT(chosen("", {docker, soft("lo"), soft("eth0")}), ElementsAre("soft:udp:eth0"));
  EXPECT_THAT(chosen("", {docker, soft("lo")}), ElementsAre("soft:udp:docker0"));
  EXPECT_THAT(chosen("docker0", {docker, soft("eth0")}), ElementsAre("soft:udp:docker0"));
}

// Also of the verbs device: as NCCL, neither takes a container's bridge by default.
TEST(NicList, BridgesAndInterfacesWithoutCarrierAreSecluded) {
  const Address global{.ip = {0x20, 0x01, 0x0d, 0xb8}};
  const Address link_local{.ip = {0xfe, 0x80}};
  const auto interface = [&](std::string name, const Address& address) {
    return InterfaceInfo{
        .name = std::move(name), .addresses = {address}, .up = true, .running = true};
  };
  std::vector<InterfaceInfo> machine;
  for (const char* name : {"eth0", "eth1", "docker0", "unplugged", "lo"}) {
    machine.push_back(interface(name, global));
  }
  machine.push_back(interface("fe80", link_local));
  machine[2].bridge = true;
  machine[3].running = false;
  machine[4].loopback = true;
  EXPECT_THAT(chosen("", soft_candidates(machine)), ElementsAre("soft:udp:eth0", "soft:udp:eth1"));
  EXPECT_THAT(chosen("", soft_candidates(machine, "eth1")), ElementsAre("soft:udp:eth1"));
  EXPECT_THAT(chosen("docker0", soft_candidates(machine)), ElementsAre("soft:udp:docker0"));
}

TEST(NicList, ErrorTellsAHostWithoutNicsFromAnEmptyList) {
  EXPECT_THAT(error("", {soft("lo", false)}).message, HasSubstr("this host has no NIC"));
  EXPECT_THAT(error("", {soft("lo", false)}).message, Not(HasSubstr("PACECAR_NICS")));
  EXPECT_THAT(error("^eth0,^eth1,^lo").message, HasSubstr("PACECAR_NICS leaves no NIC"));
}

TEST(NicList, LoopbackIsUsedIfThereIsNoOtherInterface) {
  EXPECT_THAT(chosen("", {soft("lo"), soft("down0", false)}), ElementsAre("soft:udp:lo"));
  EXPECT_THAT(chosen("^eth0,^eth1"), ElementsAre("soft:udp:lo"));
}

TEST(NicList, NamesChooseNicsInTheirOrder) {
  EXPECT_THAT(chosen("eth1,soft:udp:eth0"), ElementsAre("soft:udp:eth1", "soft:udp:eth0"));
  EXPECT_THAT(chosen("lo"), ElementsAre("soft:udp:lo"));
}

TEST(NicList, RepeatedNameCountsOnce) {
  EXPECT_THAT(chosen("eth1,soft:udp:eth1"), ElementsAre("soft:udp:eth1"));
}

// A DPDK device's name and its arguments.
std::vector<std::string> dpdk_devices(std::string_view list) {
  const auto nics = choose_nics(list, kMachine);
  if (!nics) return {"error: " + nics.error().message};
  std::vector<std::string> texts;
  for (const NicGroup& group : *nics) {
    for (const NicCandidate& nic : group) texts.push_back(nic.name() + " " + nic.arguments);
  }
  return texts;
}

TEST(NicList, DpdkDevicesKeepTheirArguments) {
  EXPECT_THAT(dpdk_devices("soft:dpdk:0000:3b:00.0"), ElementsAre("soft:dpdk:0000:3b:00.0 "));
  EXPECT_THAT(dpdk_devices("soft:dpdk:net_vhost0,client=1,queues=1,soft:udp:eth0"),
              ElementsAre("soft:dpdk:net_vhost0 client=1,queues=1", "soft:udp:eth0 "));
  EXPECT_THAT(dpdk_devices("eth1,soft:dpdk:net_ring0,eth0"),
              ElementsAre("soft:udp:eth1 ", "soft:dpdk:net_ring0 ", "soft:udp:eth0 "));
  EXPECT_THAT(dpdk_devices("soft:dpdk:net_vhost0,queues=0+soft:dpdk:net_vhost1,queues=1"),
              ElementsAre("soft:dpdk:net_vhost0 queues=0", "soft:dpdk:net_vhost1 queues=1"));
  EXPECT_THAT(
      dpdk_devices(
          "soft:dpdk:net_vhost0,queues=0,soft:dpdk:net_vhost1,queues=1,^soft:dpdk:net_vhost1"),
      ElementsAre("soft:dpdk:net_vhost0 queues=0"));
  EXPECT_EQ(error("soft:dpdk:").code, ErrorCode::kInvalidArgument);
}

TEST(NicList, LibfabricProvidersAreChosenByNameAndNeedNotExist) {
  EXPECT_THAT(chosen("ofi:tcp"), ElementsAre("ofi:tcp"));
  EXPECT_THAT(chosen("ofi:tcp:eth0,eth1"), ElementsAre("ofi:tcp:eth0", "soft:udp:eth1"));
  EXPECT_THAT(chosen("ofi:verbs;ofi_rxm"), ElementsAre("ofi:verbs;ofi_rxm"));
  EXPECT_THAT(chosen("ofi:tcp:eth0+ofi:tcp:eth1"), ElementsAre("ofi:tcp:eth0+ofi:tcp:eth1"));
  EXPECT_THAT(chosen("ofi:tcp,ofi:efa,^ofi:tcp"), ElementsAre("ofi:efa"));
  EXPECT_THAT(chosen("^ofi:tcp"), ElementsAre("soft:udp:eth0", "soft:udp:eth1"));
  EXPECT_THAT(error("ofi:tcp+ofi:tcp").message, HasSubstr("twice"));
  EXPECT_EQ(error("ofi:tcp,^ofi:tcp").code, ErrorCode::kNotFound);
  for (const char* nameless : {"ofi:", "^ofi:", "ofi:tcp+ofi:"}) {
    EXPECT_EQ(error(nameless).code, ErrorCode::kInvalidArgument) << nameless;
  }
}

TEST(NicList, CaretExcludesANic) {
  EXPECT_THAT(chosen("^eth0"), ElementsAre("soft:udp:eth1"));
  EXPECT_THAT(chosen("^soft:udp:eth0"), ElementsAre("soft:udp:eth1"));
  EXPECT_THAT(chosen("^eth0,eth0,eth1"), ElementsAre("soft:udp:eth1"));
  EXPECT_THAT(chosen("^nothing"), ElementsAre("soft:udp:eth0", "soft:udp:eth1"));
}

TEST(NicList, PlusBondsNics) {
  EXPECT_THAT(chosen("eth0+soft:udp:eth1,lo"),
              ElementsAre("soft:udp:eth0+soft:udp:eth1", "soft:udp:lo"));
  EXPECT_THAT(chosen("eth0+eth1,^eth0"), ElementsAre("soft:udp:eth1"));
  EXPECT_EQ(error("eth0+eth1,^eth0,^eth1").code, ErrorCode::kNotFound);
  for (const char* twice : {"eth0+eth0", "eth0+eth1,lo+eth1", "eth0,eth0+eth1"}) {
    EXPECT_THAT(error(twice).message, HasSubstr("twice")) << twice;
  }
  EXPECT_EQ(error("eth0+eth7").code, ErrorCode::kNotFound);
  EXPECT_EQ(error("+eth0").code, ErrorCode::kInvalidArgument);
}

TEST(NicList, RailsAreNamedByNicOrDevice) {
  constexpr std::string_view kRails = "mlx5_0=0,soft:udp:eth0=3,eth1=32767";
  EXPECT_EQ(rail_of(kRails, rdma("mlx5_0")).value(), 0);
  EXPECT_EQ(rail_of(kRails, soft("eth0")).value(), 3);
  EXPECT_EQ(rail_of(kRails, soft("eth1")).value(), 32767);
  EXPECT_EQ(rail_of(kRails, rdma("mlx5_1")).value(), std::nullopt);
  EXPECT_EQ(rail_of("", soft("eth0")).value(), std::nullopt);
  for (const char* bad : {"eth0", "eth0=", "=1", "eth0=-1", "eth0=32768", "eth0=1x", ",eth0=1"}) {
    const auto rail = rail_of(bad, soft("eth0"));
    ASSERT_FALSE(rail) << bad;
    EXPECT_THAT(rail.error().message, HasSubstr("mlx5_0=0"));
  }
}

TEST(NicList, RdmaNicsComeFirst) {
  EXPECT_THAT(chosen("", kRdmaMachine), ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_THAT(chosen("^mlx5_0", kRdmaMachine), ElementsAre("mlx5_1"));
  EXPECT_THAT(chosen("^mlx5_0,^mlx5_1", kRdmaMachine), ElementsAre("soft:udp:eth0"));
  EXPECT_THAT(chosen("eth0,mlx5_1", kRdmaMachine), ElementsAre("soft:udp:eth0", "mlx5_1"));
  EXPECT_THAT(error("mlx5_2", kRdmaMachine).message, HasSubstr("mlx5_0, mlx5_1, soft:udp:lo"));
}

TEST(NicList, NicWithAFlawIsLeftOutAndTheErrorNamesTheFlaw) {
  NicCandidate flawed = rdma("mlx5_0", false);
  flawed.flaw = "its library is not there: install it";
  const std::vector<NicCandidate> machine{flawed, soft("eth0")};
  EXPECT_THAT(chosen("", machine), ElementsAre("soft:udp:eth0"));
  EXPECT_EQ(error("mlx5_0", machine).code, ErrorCode::kUnavailable);
  EXPECT_THAT(error("mlx5_0", machine).message,
              HasSubstr("'mlx5_0', which cannot be used: its library is not there: install it"));
}

TEST(NicList, RawSocketsAreChosenByNameOnly) {
  std::vector<NicCandidate> machine = kMachine;
  for (const char* device : {"eth0", "eth1"}) {
    machine.push_back({.kind = NicKind::kSoftRaw, .device = device});
  }
  EXPECT_THAT(chosen("soft:raw:eth1,eth0", machine), ElementsAre("soft:raw:eth1", "soft:udp:eth0"));
  EXPECT_THAT(chosen("", machine), ElementsAre("soft:udp:eth0", "soft:udp:eth1"));
  EXPECT_EQ(error("soft:raw:eth0,^eth0", machine).code, ErrorCode::kNotFound);
  EXPECT_THAT(error("eth7", machine).message, Not(HasSubstr("raw")));
}

TEST(NicList, InvalidEntriesAreRefusedByName) {
  for (const char* entry : {"mlx5:0:1", "soft:ring:0000:3b:00.0", "ofa:tcp",
                            "ofi:", "soft:udp:", "soft:udp:soft:raw:eth0", ",eth1", "^"}) {
    EXPECT_EQ(error(entry).code, ErrorCode::kInvalidArgument) << entry;
  }
  EXPECT_THAT(error("eth0,ofa:tcp").message, HasSubstr("ofa:tcp"));
}

TEST(NicList, ErrorNamesTheMissingInterfaceAndTheChoices) {
  for (const char* name : {"eth7", "down0"}) {
    const Error missing = error(name);
    EXPECT_EQ(missing.code, ErrorCode::kNotFound) << name;
    EXPECT_THAT(missing.message, HasSubstr(name));
    EXPECT_THAT(missing.message, HasSubstr("soft:udp:eth0"));
  }
}

TEST(NicList, EmptyChoiceIsAnError) {
  EXPECT_EQ(error("^lo,^eth0,^eth1").code, ErrorCode::kNotFound);
  EXPECT_EQ(error("eth0,^eth0").code, ErrorCode::kNotFound);
  EXPECT_THAT(error("", {}).message, HasSubstr("no NIC"));
}

}  // namespace
}  // namespace pacecar::nic_list_test
