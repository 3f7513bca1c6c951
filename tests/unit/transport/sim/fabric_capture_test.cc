// A capture of a simulated link, read by tshark.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/fabric_world.h"

namespace pacecar::test::fabric_capture_test {
namespace {

struct PipeClose {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

std::vector<std::string> lines_of(const std::string& command) {
  const std::unique_ptr<std::FILE, PipeClose> pipe(popen(command.c_str(), "r"));
  std::string all;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe.get())) {
    all.append(buffer, count);
  }
  std::istringstream stream(all);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class CaptureTest : public testing::TestWithParam<PayloadMode> {};

TEST_P(CaptureTest, TsharkReadsTheCaptureAsRoceV2) {
  if (lines_of("tshark --version 2>/dev/null").empty()) GTEST_SKIP() << "tshark is not installed";
  const std::string path =
      testing::TempDir() + "/pacecar_fabric_" + std::to_string(getpid()) + ".pcap";
  {
    FabricConfig config = default_fabric();
    config.payload = GetParam();
    config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 2500};
    FabricWorld world(star(3), config);
    ASSERT_TRUE(world.fabric().capture(world.link(3, 2), path));
    // The number is the start of a base transport header: SEND only, default partition key.
    const uint32_t number = 0xFFFF4004;
    world.send(0, {.to = 2, .number = number, .payload = 1000, .path = 7});
    world.send(1, {.to = 2, .number = number, .payload = 1000, .path = 9});
    world.send(2, {.to = 0,
                   .number = number,
                   .payload = 500});  // the opposite direction, which is not captured
    world.send(1, {.to = 2, .number = number, .payload = 1000, .path = 9});
    world.run_dry();
  }
  const auto lines = lines_of("tshark -r " + path +
                              " -T fields -E separator=, -e ip.src -e ip.dst -e udp.srcport -e "
                              "udp.length -e ip.dsfield.ecn -e infiniband.bth.opcode 2>/dev/null");
  std::remove(path.c_str());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "10.0.0.0,10.0.0.2,4798,1028,2,4");
  EXPECT_EQ(lines[1], "10.0.0.1,10.0.0.2,4800,1028,2,4");
  EXPECT_EQ(lines[2], "10.0.0.1,10.0.0.2,4800,1028,2,4");
}

INSTANTIATE_TEST_SUITE_P(Modes, CaptureTest,
                         testing::Values(PayloadMode::kBytes, PayloadMode::kLength));

TEST(Capture, ErrorNamesTheFile) {
  FabricWorld world(star(2), default_fabric());
  const auto result = world.fabric().capture(0, "/no/such/directory/x.pcap");
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("/no/such/directory/x.pcap"), std::string::npos);
}

TEST(Capture, AFullDiskIsSaidAtTheEnd) {
  FabricWorld world(star(2), default_fabric());
  ASSERT_TRUE(world.fabric().capture(0, "/dev/full"));
  const auto result = world.fabric().close_captures();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("/dev/full' is cut (No space left"), std::string::npos);
}

}  // namespace
}  // namespace pacecar::test::fabric_capture_test
