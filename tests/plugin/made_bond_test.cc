// A device that NCCL makes of two NICs, seen through the plugin's table. The plugin is linked in,
// because the table refuses NICs that are not on PCI, such as the NICs of support/with_nics.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "net_plugin/abi/tables.h"
#include "net_plugin/communicator.h"

extern "C" const pacecar::nccl::NetV11 ncclNetPlugin_v11;

namespace pacecar::test::made_bond_test {
namespace {

using nccl::NcclResult;

constexpr const nccl::NetV11& kNet = ncclNetPlugin_v11;

// What NCCL may merge by itself.
TEST(Merging, IsForNicsOfOneKindOnDevicesOfTheirOwn) {
  const auto nic = [](const char* name, const char* device, const char* path = "/sys/devices/pci") {
    return NicInfo{.name = name, .device = device, .pci_path = path};
  };
  const auto merges = [](const std::vector<NicInfo>& nics) {
    return plugin::flaw_of_merge(nics) == nullptr;
  };
  EXPECT_TRUE(merges({nic("soft:udp:e0", "e0"), nic("soft:udp:e1", "e1")}));
  EXPECT_TRUE(merges({nic("mlx5_0", "mlx5_0"), nic("mlx5_1:2", "mlx5_1")}));
  EXPECT_FALSE(merges({nic("soft:udp:e0", "e0"), nic("soft:udp:e1", "e1", "")})) << "not on PCI";
  EXPECT_FALSE(merges({nic("ofi:tcp", "e0"), nic("soft:udp:e0", "e0")}));
  EXPECT_FALSE(merges({nic("mlx5_0", "mlx5_0"), nic("soft:udp:e1", "e1")}));
  EXPECT_FALSE(
      merges({nic("soft:udp:e0", "e0"), nic("soft:udp:e1", "e1"), nic("soft:raw:e1", "e1")}));
}

class MadeBond : public testing::Test {
 protected:
  void SetUp() override {
    const char* const names = std::getenv("PLUGIN_TEST_NICS");
    if (names == nullptr || std::string_view(names).find(',') == std::string_view::npos) {
      GTEST_SKIP() << "needs two NICs: run it by tests/support/with_nics 2";
    }
    setenv("PACECAR_NICS", names, 1);
    start();
  }
  void TearDown() override {
    if (context_ != nullptr) kNet.finalize(context_);
  }
  void start() {
    nccl::CommConfig config{nccl::kUndefined};
    ASSERT_EQ(kNet.init(&context_, 0x1234, &config, nullptr, nullptr), NcclResult::kSuccess);
  }
  static int devices() {
    int count = 0;
    EXPECT_EQ(kNet.devices(&count), NcclResult::kSuccess);
    return count;
  }
  static nccl::NetPropertiesV11 properties(int device) {
    nccl::NetPropertiesV11 found{};
    EXPECT_EQ(kNet.getProperties(device, &found), NcclResult::kSuccess);
    return found;
  }

  void* context_ = nullptr;
};

TEST_F(MadeBond, IsADeviceBehindItsMembers) {
  const std::array<int, 2> members{0, 1};
  const Result<size_t> made = plugin::make_bond(members);
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, 2U);
  EXPECT_EQ(devices(), 3);
  const auto bond = properties(2);
  const std::string name = bond.name;  // the plugin's memory is gone after finalize
  EXPECT_NE(name.find('+'), std::string::npos) << name;
  EXPECT_EQ(bond.virtual_device.count, 2);
  EXPECT_EQ(bond.virtual_device.devices[1], 1);
  EXPECT_EQ(bond.speed, properties(0).speed + properties(1).speed);
  EXPECT_EQ(plugin::make_bond(members).value(), *made) << "the same members make the same device";
  for (const std::vector<int>& wrong :
       std::vector<std::vector<int>>{{0, 2}, {1, 1}, {0, -1}, {}, {0, 99}}) {
    EXPECT_FALSE(plugin::make_bond(wrong));
  }
  EXPECT_EQ(devices(), 3);
  // NCCL makes the device once and uses it in every later communicator.
  kNet.finalize(context_);
  start();
  EXPECT_EQ(devices(), 3);
  EXPECT_EQ(properties(2).name, name);
}

}  // namespace
}  // namespace pacecar::test::made_bond_test
