// Port rates, missing devices and hardware counters, without an RDMA device.
#include "transport/verbs/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "transport/verbs/hardware_counters.h"

namespace pacecar::device_test {
namespace {

Rate rate(uint8_t width, uint8_t speed) {
  ibv_port_attr port{};
  port.active_width = width;
  port.active_speed = speed;
  return port_rate(port);
}

TEST(PortRate, FollowsFromWidthAndSpeed) {
  EXPECT_EQ(rate(2, 128), Rate::from_gbps(400));  // 4X NDR
  EXPECT_EQ(rate(2, 64), Rate::from_gbps(200));   // 4X HDR
  EXPECT_EQ(rate(2, 32), Rate::from_gbps(100));   // 4X EDR
  EXPECT_EQ(rate(1, 32), Rate::from_gbps(25));    // 1X EDR
  EXPECT_EQ(rate(16, 64), Rate::from_gbps(100));  // 2X HDR
  EXPECT_EQ(rate(1, 1), Rate::from_gbps(2));      // 1X SDR
}

TEST(PortRate, IsUnknownForUnknownCodes) {
  EXPECT_EQ(rate(0, 32), Rate());
  EXPECT_EQ(rate(2, 255), Rate());
}

TEST(VerbsDevice, MissingDeviceIsNamed) {
  const auto device = VerbsDevice::open("no_such_device", 1, std::nullopt, {});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(device.error().message, testing::HasSubstr("no_such_device"));
}

class Counters : public testing::Test {
 protected:
  Counters() {
    std::string name = (std::filesystem::temp_directory_path() / "pacecar.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder = name;
  }
  ~Counters() override { std::filesystem::remove_all(folder); }

  void write(const char* name, const char* value) { std::ofstream(folder / name) << value; }

  std::filesystem::path folder;
};

TEST_F(Counters, DeltasCountFromTheStart) {
  write("out_of_sequence", "40\n");
  write("duplicate_request", "7\n");
  write("lifespan", "10\n");
  write("active_qps", "9\n");
  const HardwareCounters counters(folder);
  write("out_of_sequence", "42\n");
  write("new_one", "3\n");
  write("active_qps", "4\n");
  const auto deltas = counters.deltas();
  std::vector<std::pair<std::string, uint64_t>> seen;
  for (const auto& [name, count] : deltas) seen.emplace_back(name, count);
  EXPECT_THAT(seen, testing::ElementsAre(
                        testing::Pair("active_qps", 0), testing::Pair("duplicate_request", 0),
                        testing::Pair("new_one", 3), testing::Pair("out_of_sequence", 2)));
}

TEST_F(Counters, DeviceWithoutCountersHasNoDeltas) {
  EXPECT_TRUE(HardwareCounters(folder / "none").deltas().empty());
}

}  // namespace
}  // namespace pacecar::device_test
