// Single checks of preflight on made-up facts.
#include "bench/preflight/checks.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "bench/preflight/read_facts.h"
#include "tests/support/fake_host.h"
#include "tests/support/finding_matchers.h"

namespace pacecar::preflight::checks_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Address = std::array<uint8_t, 16>;
constexpr Address kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
constexpr Address kIpv4LinkLocal = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 2, 1};
constexpr Address kGlobal = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Address kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

// One active RoCE port of one device, with these GIDs.
Facts roce_port(std::vector<Gid> gids) {
  RdmaPort port;
  port.device = "mlx5_0";
  port.number = 1;
  port.ethernet = true;
  port.state = "ACTIVE";
  port.netdev = "eth2";
  port.gids = std::move(gids);
  RdmaDevice device;
  device.name = "mlx5_0";
  device.pci_address = "0000:3b:00.0";
  device.ports = {port};
  Facts facts;
  facts.rdma = {device};
  return facts;
}

Gid v2(uint64_t index, const Address& address) {
  return {.index = index, .roce_v2 = true, .address = address};
}

Findings run(void (*check)(const Facts&, Findings&), const Facts& facts) {
  Findings findings;
  check(facts, findings);
  return findings;
}

TEST(PreflightGid, Ipv4ComesFirstThenGlobalThenLinkLocal) {
  const auto chosen = [](std::vector<Gid> gids) {
    return run(check_gids, roce_port(std::move(gids))).all().at(0);
  };
  EXPECT_THAT(chosen({v2(0, kLinkLocal), v2(1, kGlobal), v2(2, kIpv4)}).message,
              HasSubstr("index 2"));
  EXPECT_THAT(chosen({v2(0, kLinkLocal), v2(1, kGlobal)}).message, HasSubstr("index 1"));
  EXPECT_THAT(chosen({v2(0, kGlobal), v2(1, kIpv4LinkLocal)}).message, HasSubstr("index 1"))
      << "as the transport chooses";
  EXPECT_THAT(chosen({v2(1, kIpv4), v2(5, kIpv4)}).message, HasSubstr("index 1"));
  EXPECT_EQ(chosen({v2(0, kLinkLocal)}).id, "gid.link_local");
}

TEST(PreflightGid, GidOfRoceVersionOneIsNotChosen) {
  Gid v1 = v2(0, kIpv4);
  v1.roce_v2 = false;
  EXPECT_THAT(ids(run(check_gids, roce_port({v1}))), ElementsAre("gid.none"));
  EXPECT_THAT(ids(run(check_gids, roce_port({}))), ElementsAre("gid.none"));
}

TEST(PreflightGid, ConfiguredIndexMustBeUsable) {
  Gid v1 = v2(2, kIpv4);
  v1.roce_v2 = false;
  Facts facts = roce_port({v2(0, kLinkLocal), v2(1, kGlobal), v1, v2(3, kIpv4)});
  facts.settings.gid_index = "1";
  EXPECT_THAT(run(check_gids, facts).all().at(0).message, HasSubstr("index 1"));
  facts.settings.gid_index = "0";
  EXPECT_THAT(ids(run(check_gids, facts)), ElementsAre("gid.index_link_local"));
  EXPECT_EQ(run(check_gids, facts).all().at(0).cure, "export PACECAR_GID_INDEX=3");
  for (const char* bad : {"2", "7", "-1", "x", "99999999999999999999"}) {
    facts.settings.gid_index = bad;
    const Findings findings = run(check_gids, facts);
    EXPECT_THAT(ids(findings), ElementsAre("gid.index_unusable")) << bad;
    EXPECT_EQ(findings.all().at(0).cure, "export PACECAR_GID_INDEX=3");
  }
}

TEST(PreflightGid, PortThatIsDownIsFoundByTheRdmaCheckOnly) {
  Facts facts = roce_port({});
  facts.rdma[0].ports[0].state = "DOWN";
  EXPECT_THAT(ids(run(check_gids, facts)), IsEmpty());
  facts.software.libibverbs = "/usr/lib/libibverbs.so.1";
  facts.rdma[0].node = "dev/infiniband/uverbs0";
  EXPECT_THAT(ids(run(check_rdma, facts), Severity::kWarning),
              ElementsAre("rdma.link_down", "rdma.no_active_port"));
}

TEST(PreflightRdma, EachReasonWhyADeviceNodeCannotBeOpenedIsNamed) {
  Facts facts = roce_port({});
  EXPECT_THAT(ids(run(check_rdma, facts)), Contains("rdma.uverbs_missing"));
  EXPECT_THAT(ids(run(check_rdma, facts)), Contains("rdma.libibverbs_missing"));
  facts.rdma[0].node = "dev/infiniband/uverbs0";
  facts.rdma[0].open_error = ENOENT;
  EXPECT_THAT(ids(run(check_rdma, facts)), Contains("rdma.uverbs_missing"));
  facts.process.in_container = true;
  EXPECT_THAT(ids(run(check_rdma, facts)), Contains("rdma.not_in_container"));
  facts.rdma[0].open_error = EACCES;
  EXPECT_THAT(find(run(check_rdma, facts), "rdma.denied").message, HasSubstr("Permission denied"));
}

TEST(PreflightMtu, FindingsFollowThePeersAnswers) {
  Facts facts = roce_port({});
  const auto id = [&](PeerPath path) {
    path.host = "peer";
    facts.peer = path;
    return run(check_mtu, facts).all().at(0);
  };
  EXPECT_EQ(id({.error = "no"}).id, "mtu.peer_unreachable");
  EXPECT_EQ(id({}).id, "mtu.peer_silent");
  const Finding small = id({.largest_bytes = 1500, .failed_bytes = 2144});
  EXPECT_EQ(small.id, "mtu.peer_small");
  EXPECT_THAT(small.message, HasSubstr("RDMA MTU 1024"));
  EXPECT_EQ(small.cure, "tracepath -n peer");
  EXPECT_EQ(id({.largest_bytes = 4192}).id, "mtu.peer_both_ways");
  Netdev plain;
  plain.name = "eth0";
  plain.mtu = 1500;
  plain.up = true;
  facts.netdevs = {plain};
  EXPECT_EQ(id({.largest_bytes = 1500, .failed_bytes = 2144}).id, "mtu.peer_both_ways")
      << "no interface sends larger ones";
  facts.netdevs[0].mtu = 1440;
  EXPECT_EQ(id({.largest_bytes = 1120, .failed_bytes = 1500}).id, "mtu.peer_both_ways");
}

TEST(PreflightFabric, MissingPfcAndEcnAndReceivedPausesAreFound) {
  Facts facts = roce_port({});
  EXPECT_THAT(ids(run(check_fabric, facts)),
              ElementsAre("fabric.pfc_unknown", "fabric.ecn_unknown"));
  Netdev netdev;
  netdev.name = "eth2";
  netdev.pfc = 0;
  netdev.ecn_notify = 0x08;
  netdev.ecn_react = 0x10;  // both are on, but for no common priority
  netdev.pauses = {{"rx_prio3_pause", 17}, {"rx_prio0_pause", 0}};
  facts.netdevs = {netdev};
  const Findings findings = run(check_fabric, facts);
  EXPECT_THAT(ids(findings), ElementsAre("fabric.pfc_off", "fabric.ecn_off", "fabric.paused"));
  EXPECT_EQ(find(findings, "fabric.pfc_off").cure, "dcb pfc set dev eth2 prio-pfc all:off 3:on");
  EXPECT_EQ(find(findings, "fabric.paused").message, "pauses received: rx_prio3_pause 17");
}

TEST(PreflightPci, IommuWithoutATypePerGroupIsJudgedByTheKernelCommandLine) {
  Facts facts = roce_port({});
  facts.pci = {{.address = "0000:3b:00.0", .kind = PciKind::kNic},
               {.address = "0000:3c:00.0", .kind = PciKind::kGpu}};
  facts.software.iommu_groups = true;
  EXPECT_THAT(ids(run(check_pci, facts)), Contains("pci.iommu_translates"));
  facts.software.kernel_command_line = "quiet iommu=pt";
  EXPECT_THAT(ids(run(check_pci, facts)), Contains("pci.iommu"));
}

TEST(PreflightPci, AcsOfBridgesThatOnlyRootMayReadIsUnknown) {
  Facts facts = roce_port({});
  facts.pci = {{.address = "0000:3b:00.0", .kind = PciKind::kNic, .bridges = {"0000:3a:00.0"}},
               {.address = "0000:3c:00.0", .kind = PciKind::kGpu}};
  facts.bridges = {{"0000:3a:00.0", AcsState::kUnreadable}};
  EXPECT_THAT(ids(run(check_pci, facts)), Contains("pci.acs_unknown"));
}

TEST(PreflightPci, SlowLinkOfAGpuIsNoProblem) {
  Facts facts;
  facts.pci = {{.address = "0000:3c:00.0",
                .kind = PciKind::kGpu,
                .link_speed = "2.5 GT/s PCIe",
                .max_link_speed = "32.0 GT/s PCIe",
                .link_width = 16,
                .max_link_width = 16}};
  EXPECT_THAT(ids(run(check_pci, facts)), ElementsAre("pci.link"));
  facts.pci[0].link_speed = "Unknown";
  EXPECT_THAT(ids(run(check_pci, facts)), IsEmpty());
}

TEST(PreflightConfigSpace, AcsBitsThatRedirectAreFound) {
  EXPECT_EQ(acs_state(std::string(64, '\0')), AcsState::kUnreadable);
  EXPECT_EQ(acs_state(std::string(4096, '\0')), AcsState::kOff);
  EXPECT_EQ(acs_state(config_with_acs(0)), AcsState::kOff);
  EXPECT_EQ(acs_state(config_with_acs(0x01)), AcsState::kOff);  // source validation alone
  for (const uint16_t bit : {0x04, 0x08, 0x10}) {
    EXPECT_EQ(acs_state(config_with_acs(bit)), AcsState::kRedirects);
  }
  EXPECT_EQ(acs_state(config_with_acs(0x1f).substr(0, 0x14c)), AcsState::kOff);  // cut short
  std::string circle = config_with_acs(0);
  circle[0x14a] = 0x00;  // ACS gets another ID, and its next capability is the first one
  circle[0x148] = 0x7f;
  circle[0x14b] = 0x10;
  EXPECT_EQ(acs_state(circle), AcsState::kOff);
}

TEST(PreflightGpu, DmabufNeedsAKernelAndTheOpenModules) {
  Facts facts;
  facts.pci = {{.address = "0000:3c:00.0", .kind = PciKind::kGpu}};
  const auto id = [&](const std::string& kernel, const std::string& driver) {
    facts.software.kernel = kernel;
    facts.software.nvidia_driver = driver;
    return run(check_gpu, facts).all().at(0).id;
  };
  const std::string open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1";
  EXPECT_EQ(id("6.1.0-18-amd64", ""), "gpu.driver_missing");
  EXPECT_EQ(id("6.1.0-18-amd64", open), "gpu.direct_dmabuf");
  EXPECT_EQ(id("5.12-rc1", open), "gpu.direct_dmabuf");
  EXPECT_EQ(id("5.4.0", open), "gpu.direct_off");
  EXPECT_EQ(id("garbage", open), "gpu.direct_off");
  EXPECT_EQ(id("6.1.0", "NVIDIA UNIX x86_64 Kernel Module  535"), "gpu.direct_off");
  facts.software.modules = {"nvidia_peermem"};
  EXPECT_EQ(id("5.4.0", open), "gpu.direct_peermem");
}

TEST(PreflightSoftware, WrongParametersAndMissingOrOldNcclAreFound) {
  Facts facts;
  facts.settings.error = "PACECAR_RATE_MAX is no rate";
  facts.settings.warnings = {"PACECAR_CCC is no parameter"};
  EXPECT_THAT(ids(run(check_software, facts), Severity::kInfo),
              ElementsAre("software.modules", "software.nccl_missing", "software.parameters",
                          "software.parameter_unknown"));
  facts.software.nccl = "/usr/lib/libnccl.so.2";  // a file name without a version
  EXPECT_THAT(ids(run(check_software, facts)), Contains("software.nccl"));
  facts.software.nccl = "/usr/lib/libnccl.so.2.13.4";
  EXPECT_THAT(ids(run(check_software, facts)), Contains("software.nccl"));
  facts.software.nccl = "/usr/lib/libnccl.so.2.12.12";
  EXPECT_THAT(ids(run(check_software, facts)), Contains("software.nccl_old"));
}

TEST(PreflightChecks, ChecksAreChosenByName) {
  EXPECT_EQ(choose_checks("")->size(), checks().size());
  EXPECT_EQ(choose_checks("mtu,rdma")->size(), 2U);
  EXPECT_EQ(choose_checks("mtu,rdma")->at(0).name, "rdma");
  const auto unknown = choose_checks("rdma,nope");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, HasSubstr("'nope'"));
}

}  // namespace
}  // namespace pacecar::preflight::checks_test
