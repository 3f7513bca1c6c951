// The samples of `pacecar top`: samples at several hosts.
#include "bench/top/samples.h"

#include <gmock/gmock.h>

#include "transport/api/state_document.h"

namespace pacecar::test::samples_test {
namespace {

using namespace top;
using testing::ElementsAre;
using testing::SizeIs;

doctor::Evidence sample(pid_t pid, uint8_t identity, Duration uptime) {
  ProcessState state;
  state.name = {.host = "h", .program = "p", .pid = pid, .rank = std::nullopt};
  state.uptime = uptime;
  NicState nic{.info = {.name = "nic"}};
  nic.identity.fill(identity);
  state.nics.push_back(std::move(nic));
  return {{{nullptr, nlohmann::json::parse(state_document(state))}}, {}};
}

TEST(TopSamplesTest, LookIsPairedWithThePreviousOneOfItsProcess) {
  HostSamples samples({""});
  samples.post(0, sample(7, 1, Duration::from_s(1)), {});
  EXPECT_TRUE(samples.all().evidence.seen.at(0).before.is_null());
  samples.post(0, sample(7, 1, Duration::from_s(2)), {"note"});
  const auto seen = samples.all();
  EXPECT_EQ(seen.evidence.seen.at(0).before["uptime_ns"], 1'000'000'000);
  EXPECT_EQ(seen.evidence.seen[0].now["uptime_ns"], 2'000'000'000);
  EXPECT_THAT(seen.notes, ElementsAre("note"));
  samples.post(0, sample(7, 2, Duration::from_s(3)), {});
  EXPECT_TRUE(samples.all().evidence.seen.at(0).before.is_null())
      << "another process of the same pid";
}

TEST(TopSamplesTest, InvalidDocumentHasNoPreviousLook) {
  HostSamples samples({""});
  for (const char* text : {"7", "{}", "[]", "null"}) {
    samples.post(0, {{{nullptr, nlohmann::json::parse(text)}}, {}}, {});
    EXPECT_TRUE(samples.all().evidence.seen.at(0).before.is_null());
  }
}

TEST(TopSamplesTest, HostThatEndsGivesANoteAndIsNotAwaited) {
  HostSamples samples({"node1", "node2"});
  samples.post(0, sample(7, 1, {}), {});
  EXPECT_FALSE(samples.has_samples(1));
  samples.end(1, "gone");
  EXPECT_TRUE(samples.has_samples(1));
  EXPECT_FALSE(samples.has_samples(2));
  EXPECT_THAT(samples.all().notes, ElementsAre("node2: gone"));
  EXPECT_THAT(samples.all().evidence.seen, SizeIs(1));
  EXPECT_EQ(samples.version(), 2U);
}

}  // namespace
}  // namespace pacecar::test::samples_test
