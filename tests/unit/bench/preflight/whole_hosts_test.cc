// Facts that preflight reads from whole hosts, given as trees of files, and its findings.
#include <gtest/gtest.h>

#include <set>

#include "bench/preflight/checks.h"
#include "bench/preflight/read_facts.h"
#include "tests/support/fake_host.h"
#include "tests/support/finding_matchers.h"

namespace pacecar::preflight::whole_hosts_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(PreflightHosts, HealthyRoceHostHasNoProblem) {
  FakeHost host;
  make_mlx5_host(host);
  Facts facts = host.facts();
  facts.netdevs.front().pfc = 0x08;
  const Findings findings = examine(facts, checks());
  EXPECT_THAT(problems(findings), IsEmpty());
  EXPECT_THAT(ids(findings), IsSupersetOf({"rdma.port", "rdma.libibverbs", "gid.chosen", "mtu.full",
                                           "limits.memlock", "fabric.pfc", "fabric.ecn",
                                           "fabric.no_loss", "pci.link", "pci.iommu", "pci.acs_off",
                                           "gpu.direct_peermem", "cpu.near", "software.nccl"}));
  EXPECT_EQ(find(findings, "rdma.port").message,
            "RoCE, ACTIVE, 100 Gb/sec (4X EDR), interface eth2, firmware 20.39.1002, GUID "
            "b83f:d203:00aa:bb01");
  EXPECT_EQ(find(findings, "gid.chosen").message, "GID index 3, RoCE v2, 192.0.2.21");
  EXPECT_THAT(find(findings, "fabric.ecn").message, HasSubstr("priority 3"));
  EXPECT_THAT(find(findings, "fabric.pfc").message, HasSubstr("priority 3"));
  EXPECT_EQ(find(findings, "software.nccl").message, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9");
}

TEST(PreflightHosts, InfiniBandHostNeedsNoGidAndNoPfc) {
  FakeHost host;
  make_infiniband_host(host);
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings), IsEmpty());
  EXPECT_THAT(find(findings, "rdma.port").message, HasSubstr("InfiniBand, ACTIVE"));
  EXPECT_THAT(ids(findings), Not(Contains("gid.none")));
  EXPECT_THAT(ids(findings), Not(Contains("fabric.pfc_unknown")));
}

TEST(PreflightHosts, InfiniBandPortWithoutASubnetManagerIsFound) {
  FakeHost host;
  make_infiniband_host(host);
  host.file("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT\n");
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings), ElementsAre("rdma.no_subnet_manager", "rdma.no_active_port"));
  host.file("sys/class/infiniband/mlx5_0/ports/1/phys_state", "2: Polling\n");
  EXPECT_EQ(find(host.findings(), "rdma.port_down").cure, "rdma link show mlx5_0/1");
}

TEST(PreflightHosts, RxeHostHasNoProblemUnlessItsMtuIsSmall) {
  FakeHost host;
  make_rxe_host(host);
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings), IsEmpty());
  EXPECT_THAT(ids(findings), IsSupersetOf({"rdma.port", "gid.chosen", "mtu.full"}));
  EXPECT_THAT(ids(findings), Not(Contains("fabric.ecn_unknown")));  // not of software devices
  host.file("sys/class/net/eth0/mtu", "1500\n");
  const Finding small = find(host.findings(), "mtu.small");
  EXPECT_THAT(small.message, HasSubstr("RDMA MTU 1024"));
  EXPECT_EQ(small.cure, "ip link set dev eth0 mtu 9000");
}

TEST(PreflightHosts, MissingDeviceNodeInAContainerIsFound) {
  FakeHost host;
  make_mlx5_host(host);
  host.remove("dev/infiniband").file(".dockerenv", "");
  host.file("proc/self/limits", "Max locked memory         65536      65536     bytes\n");
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings),
              UnorderedElementsAre("rdma.not_in_container", "limits.memlock_low"));
  EXPECT_THAT(find(findings, "rdma.not_in_container").cure,
              HasSubstr("docker run --device /dev/infiniband"));
}

TEST(PreflightHosts, DeviceNodeThatCannotBeOpenedIsFound) {
  FakeHost host;
  make_rxe_host(host);
  host.folder("dev/infiniband/uverbs0");  // fails for root too
  const Finding denied = find(host.findings(), "rdma.denied");
  EXPECT_EQ(denied.subject, "rxe0");
  EXPECT_EQ(denied.cure, "chmod a+rw /dev/infiniband/uverbs0");
}

TEST(PreflightHosts, NoRdmaDeviceIsNoProblem) {
  FakeHost host;
  make_plain_host(host);
  host.file("sys/class/net/ens3/mtu", "1500\n")
      .file("sys/class/net/ens3/operstate", "up\n")
      .folder("sys/class/net/ens3/device")
      .file("sys/class/net/lo/mtu", "1500\n")
      .file("sys/class/net/lo/operstate", "up\n")
      .file("proc/self/limits", "Max locked memory         65536      65536     bytes\n");
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings), IsEmpty());
  EXPECT_THAT(ids(findings), IsSupersetOf({"rdma.none", "mtu.no_jumbo", "gpu.none"}));
  EXPECT_EQ(find(findings, "mtu.no_jumbo").subject, "ens3");
}

TEST(PreflightHosts, AdapterWithoutItsDriverIsFound) {
  FakeHost host;
  make_mlx5_host(host);
  host.remove("sys/class/infiniband");
  EXPECT_THAT(problems(host.findings()), Contains("rdma.driver_missing"));
}

TEST(PreflightHosts, EmptyTreeHasNoProblem) {
  const FakeHost host;
  EXPECT_EQ(problems(host.findings()), std::vector<std::string>{});
}

TEST(PreflightHosts, HostWithManyProblemsHasAFindingForEach) {
  FakeHost host;
  make_mlx5_host(host);
  const std::string nic = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
  host.file(nic + "/current_link_speed", "8.0 GT/s PCIe\n")
      .file(nic + "/current_link_width", "8\n")
      .file(nic + "/iommu_group/type", "DMA-FQ\n")
      .file(nic + "/numa_node", "1\n")
      .file("sys/devices/pci0000:3a/0000:3a:00.0/config", config_with_acs(0x1d))
      .file("sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "12\n")
      .file("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106\n")
      .file("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "104\n")
      .file("sys/class/net/eth2/mtu", "1500\n")
      .file("sys/class/net/eth2/ecn/roce_np/enable/3", "0\n")
      .remove("sys/module/nvidia_peermem")
      .remove("usr/lib/x86_64-linux-gnu/libibverbs")
      .remove("usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9")
      .file("usr/lib/x86_64-linux-gnu/libnccl.so.2.11.4", "")
      .file("proc/self/limits",
            "Max open files  256  256  files\nMax locked memory  268435456  unlimited  bytes\n")
      .file("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n")
      .file("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n")
      .file("proc/sys/net/core/rmem_max", "212992\n")
      .file("proc/sys/net/core/wmem_max", "212992\n")
      .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
      .file("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n")
      .file("proc/meminfo", "HugePages_Total:       0\n");
  const Findings findings = host.findings();
  EXPECT_THAT(problems(findings),
              UnorderedElementsAre("rdma.provider_missing", "mtu.small", "limits.memlock_finite",
                                   "limits.files_low", "limits.receive_buffer_low",
                                   "limits.send_buffer_low", "limits.cpu_quota", "fabric.loss",
                                   "fabric.ecn_off", "pci.link_slow", "pci.link_narrow",
                                   "pci.iommu_translates", "pci.acs_on", "gpu.direct_off",
                                   "cpu.governor_slow", "cpu.far", "software.nccl_old"));
  EXPECT_THAT(ids(findings), IsSupersetOf({"fabric.traffic_class", "gpu.far", "cpu.idle_deep",
                                           "cpu.no_huge_pages"}));
  EXPECT_EQ(find(findings, "pci.acs_on").cure, "setpci -s 0000:3a:00.0 ECAP_ACS+0x6.w=0000");
  EXPECT_EQ(find(findings, "limits.receive_buffer_low").cure,
            "sysctl -w net.core.rmem_max=8388608");
  EXPECT_EQ(find(findings, "limits.cpu_quota").cure,
            "echo max > /sys/fs/cgroup/user.slice/cpu.max");
  EXPECT_EQ(find(findings, "cpu.far").cure, "numactl --cpunodebind=1 --membind=1 COMMAND");
  EXPECT_THAT(find(findings, "fabric.loss").message, HasSubstr("packet_seq_err 12"));
}

TEST(PreflightHosts, CapabilitiesLiftTheLimits) {
  FakeHost host;
  make_rxe_host(host);
  host.file("proc/self/limits", "Max locked memory  65536  65536  bytes\n")
      .file("proc/sys/net/core/rmem_max", "212992\n")
      .file("proc/self/status", "CapEff:\t0000000000005000\n");
  EXPECT_THAT(problems(host.findings()), IsEmpty());
  host.file("proc/self/uid_map", "         0       1000          1\n");
  EXPECT_THAT(problems(host.findings()), Contains("limits.receive_buffer_low"));
}

TEST(PreflightHosts, GrowingLossCountersAreFound) {
  FakeHost host;
  make_mlx5_host(host);
  const std::string counter = "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence";
  host.file(counter, "40\n");
  const Facts before = host.facts();
  Facts same = host.facts();
  set_growth(before, Duration::from_s(10), same);
  EXPECT_THAT(ids(examine(same, checks())), Contains("fabric.loss_past"));
  host.file(counter, "47\n");
  Facts after = host.facts();
  set_growth(before, Duration::from_s(10), after);
  EXPECT_THAT(find(examine(after, checks()), "fabric.loss_grows").message,
              HasSubstr("in 10 s: out_of_sequence 7"));
}

TEST(PreflightHosts, LossOfASoftwareDeviceIsNotBlamedOnPfc) {
  FakeHost host;
  make_rxe_host(host);
  // Some drivers let their software device point to the hardware below its interface.
  host.link("sys/class/infiniband/rxe0/device", "sys/devices/pci0000:00/0000:00:03.0");
  const Facts before = host.facts();
  host.file("sys/class/infiniband/rxe0/ports/1/hw_counters/packet_seq_err", "5\n");
  Facts after = host.facts();
  set_growth(before, Duration::from_s(1), after);
  const Findings findings = examine(after, checks());
  EXPECT_THAT(problems(findings), ElementsAre("fabric.loss_without_pfc"));
  EXPECT_EQ(find(findings, "fabric.loss_without_pfc").cure, "ip -s link show dev eth0");
}

TEST(PreflightHosts, CopiesOfTheSymbolicLinksAreFollowed) {
  FakeHost host;
  make_mlx5_host(host);
  const Facts facts = host.facts();
  EXPECT_EQ(facts.rdma.at(0).pci_address, "0000:3b:00.0");
  EXPECT_EQ(facts.rdma.at(0).driver, "mlx5_core");
  ASSERT_NE(facts.pci_device("0000:3b:00.0"), nullptr);
  EXPECT_THAT(facts.pci_device("0000:3b:00.0")->bridges, ElementsAre("0000:3a:00.0"));
}

}  // namespace
}  // namespace pacecar::preflight::whole_hosts_test
