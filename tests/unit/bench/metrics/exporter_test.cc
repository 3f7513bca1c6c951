// pacecar metrics: its address, the page with all processes of a host, and its file.
#include "bench/metrics/exporter.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/metrics/destination.h"
#include "tests/support/scratch_directory.h"
#include "transport/api/state_document.h"
#include "transport/wire/address.h"

namespace pacecar::test::exporter_test {
namespace {

using namespace metrics;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(MetricsAddressTest, AddressIsAPortOrAnIpWithAPort) {
  const auto written = [](std::string_view text) {
    return to_string(listen_address(text).value());
  };
  EXPECT_EQ(written(""), "127.0.0.1:18516");
  EXPECT_EQ(written("9000"), "127.0.0.1:9000");
  EXPECT_EQ(written("192.0.2.1:0"), "192.0.2.1:0");
  EXPECT_EQ(written("[::1]:80"), "[::1]:80");
  for (const char* text : {":80", "a:", "a:b", "a:65536", "65536", "[::1", "[]:1", "[::1]x", "a b",
                           "node1:80", "\x1b[2J", "99999999999999999999"}) {
    const auto address = listen_address(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(MetricsAddressTest, OnlyLoopbackAddressesAreLoopback) {
  for (const char* text : {"", "127.9.9.9:1", "[::1]:1"}) {
    EXPECT_TRUE(is_loopback(listen_address(text).value())) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"}) {
    EXPECT_FALSE(is_loopback(listen_address(text).value())) << text;
  }
}

doctor::Process process(uint64_t pid, std::optional<uint64_t> rank = {}) {
  doctor::Process made{.host = "h", .program = "train", .pid = pid, .rank = rank};
  made.nics.push_back({.name = "nic", .identity = std::to_string(pid)});
  return made;
}

TEST(ProcessNumbersTest, NumbersAreKeptAndThoseOfEndedProcessesAreReused) {
  ProcessNumbers numbers;
  EXPECT_THAT(numbers.of({process(10), process(11), process(12)}), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers.of({process(12), process(10)}), ElementsAre(2, 0));
  EXPECT_THAT(numbers.of({process(10), process(12), process(13), process(14)}),
              ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(numbers.of({}), ElementsAre());
  EXPECT_THAT(numbers.of({process(20)}), ElementsAre(0));
}

TEST(ProcessNumbersTest, NumbersAreUniquePerProgramAndRank) {
  ProcessNumbers numbers;
  EXPECT_THAT(numbers.of({process(1, 0), process(2, 1), process(3), process(4, 1)}),
              ElementsAre(0, 0, 0, 1));
}

nlohmann::json summary(pid_t pid, size_t nics) {
  ProcessState state;
  state.name = {.host = "h", .program = "train", .pid = pid, .rank = std::nullopt};
  for (size_t i = 0; i < nics; ++i) {
    NicState nic{.info = {.name = "nic" + std::to_string(i)}};
    nic.identity.fill(static_cast<uint8_t>(pid));
    nic.statistics.bytes_sent = 77;
    nic.statistics.device_counters = {{"cnp", 3}};
    state.nics.push_back(std::move(nic));
  }
  return nlohmann::json::parse(state_document(state, StateDetail::kSummary));
}

std::string page(const doctor::Gathered& gathered) {
  ProcessNumbers numbers;
  return page_of(host_of(gathered, numbers));
}

TEST(MetricsPageTest, PageHasTheFiguresOfAllProcesses) {
  doctor::Gathered gathered;
  gathered.evidence.seen = {{nullptr, summary(5, 1)}, {nullptr, summary(6, 1)}};
  gathered.evidence.silent.push_back({"h", 7, "stopped"});
  gathered.warnings = {"pid 8: nonsense"};
  const std::string text = page(gathered);
  for (const char* line :
       {"pacecar_sent_bytes_total{program=\"train\",process=\"0\",nic=\"nic0\",cc=\"\"} 77\n",
        "pacecar_sent_bytes_total{program=\"train\",process=\"1\",nic=\"nic0\",cc=\"\"} 77\n",
        "pacecar_device_events_total{program=\"train\",process=\"1\",nic=\"nic0\",cc=\"\","
        "counter=\"cnp\"} 3\n",
        "pacecar_processes 2\n", "pacecar_silent_processes 1\n", "pacecar_unreadable_processes 1\n",
        "pacecar_nics_left_out 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsPageTest, ProcessThatIsFoundTwiceIsCountedOnce) {
  doctor::Gathered gathered;
  gathered.evidence.seen = {{nullptr, summary(5, 1)}, {nullptr, summary(5, 1)}};
  EXPECT_THAT(page(gathered), HasSubstr("pacecar_processes 1\n"));
}

TEST(MetricsPageTest, NumberOfNicsOnThePageIsBounded) {
  doctor::Gathered gathered;
  gathered.evidence.seen = {{nullptr, summary(5, kMaxNics + 9)}, {nullptr, summary(6, 1)}};
  EXPECT_THAT(page(gathered), HasSubstr("pacecar_nics_left_out 10\n"));
}

TEST(MetricsPageTest, InvalidSummariesAreCounted) {
  doctor::Gathered gathered;
  for (const char* text : {"7", "{}", "[]", "null"}) {
    gathered.evidence.seen.push_back({nullptr, nlohmann::json::parse(text)});
  }
  nlohmann::json foreign = summary(5, 1);
  foreign["nics"][0]["statistics"]["bytes_sent"] = -1;
  gathered.evidence.seen.push_back({nullptr, foreign});
  foreign = summary(5, 1);
  foreign["nics"][0]["statistics"]["device"] = {{"a\n# HELP", 1}};
  gathered.evidence.seen.push_back({nullptr, foreign});
  EXPECT_THAT(page(gathered), HasSubstr("pacecar_unreadable_processes 6\n"));
}

TEST(MetricsFileTest, FileIsReplacedAsAWhole) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() / "pacecar.prom";
  ASSERT_TRUE(replace_file(path, "one\n"));
  ASSERT_TRUE(replace_file(path, "two\n"));
  std::string line;
  std::getline(std::ifstream(path), line);
  EXPECT_EQ(line, "two");
  EXPECT_EQ(replace_file(scratch.path() / "pacecar.txt", "").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(replace_file(scratch.path() / "no" / "such.prom", "").error().code, ErrorCode::kSystem);
  std::filesystem::create_directory(scratch.path() / "folder.prom");
  EXPECT_FALSE(replace_file(scratch.path() / "folder.prom", ""));
  const std::filesystem::directory_iterator left(scratch.path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 2) << "no temporary file is left";
}

}  // namespace
}  // namespace pacecar::test::exporter_test
