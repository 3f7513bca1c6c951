// The PCI distance between GPUs and NICs.
#include "gdr/distance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace pacecar::distance_test {
namespace {

namespace fs = std::filesystem;

const std::string kGpu =
    "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0";

TEST(PciDistance, DependsOnTheSharedBridges) {
  const auto distance = [](const std::string& nic) { return pci_distance(kGpu, nic, false); };
  EXPECT_EQ(distance("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0"),
            PciDistance::kPix);
  EXPECT_EQ(distance("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0/"
                     "0000:3f:00.0/0000:40:00.0"),
            PciDistance::kPxb);
  EXPECT_EQ(distance("/sys/devices/pci0000:3a/0000:3a:02.0/0000:41:00.0"), PciDistance::kPhb);
  EXPECT_EQ(distance("/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0"), PciDistance::kSys);
  EXPECT_EQ(pci_distance(kGpu, "/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0", true),
            PciDistance::kNode);
}

TEST(PciDistance, FunctionsOfOneCardArePix) {
  EXPECT_EQ(pci_distance("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
                         "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1", false),
            PciDistance::kPix);
}

TEST(PciDistance, IsUnknownOffTheBus) {
  EXPECT_EQ(pci_distance(kGpu, "/sys/devices/virtual/net/lo", false), std::nullopt);
  EXPECT_EQ(pci_distance(kGpu, "", false), std::nullopt);
  EXPECT_EQ(pci_distance("/sys/devices/pci0000:3a", kGpu, false), std::nullopt);
}

TEST(PciDistance, IsNamedAsByNvidiaSmi) {
  EXPECT_EQ(to_string(PciDistance::kPix), "PIX");
  EXPECT_EQ(to_string(PciDistance::kSys), "SYS");
}

TEST(GpuDistance, ReadsSysfs) {
  std::string name = (fs::temp_directory_path() / "pacecar.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path root = fs::canonical(name);
  const fs::path gpu = root / "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
  const fs::path nic = root / "sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0";
  fs::create_directories(gpu);
  fs::create_directories(nic);
  fs::create_directories(root / "sys/bus/pci/devices");
  fs::create_symlink(gpu, root / "sys/bus/pci/devices/0000:3b:00.0");
  const std::string nic_path = "/" + nic.lexically_relative(root).string();

  std::ofstream(gpu / "numa_node") << "0\n";
  std::ofstream(nic / "numa_node") << "1\n";
  EXPECT_EQ(gpu_distance("0000:3b:00.0", nic_path, root), PciDistance::kSys);
  std::ofstream(nic / "numa_node") << "0\n";
  EXPECT_EQ(gpu_distance("0000:3b:00.0", nic_path, root), PciDistance::kNode);
  EXPECT_EQ(gpu_distance("0000:99:00.0", nic_path, root), std::nullopt);
  EXPECT_EQ(gpu_distance("0000:3b:00.0", "", root), std::nullopt);
  fs::remove_all(root);
}

}  // namespace
}  // namespace pacecar::distance_test
