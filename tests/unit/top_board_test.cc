// Looks at several hosts, and what another host says over ssh.
#include <gmock/gmock.h>

#include <memory>

#include "bench/top/board.h"
#include "bench/top/remote.h"
#include "transport/api/state_document.h"

namespace pacecar::test {
namespace {

using namespace top;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

doctor::Evidence look(pid_t pid, uint8_t identity, Duration uptime) {
  ProcessState state;
  state.name = {.host = "h", .program = "p", .pid = pid, .rank = std::nullopt};
  state.uptime = uptime;
  NicState nic{.info = {.name = "nic"}};
  nic.identity.fill(identity);
  state.nics.push_back(std::move(nic));
  return {{{nullptr, nlohmann::json::parse(state_document(state))}}, {}};
}

TEST(TopBoardTest, ALookIsPairedWithTheOneBeforeOfTheSameProcess) {
  Board board({""});
  board.post(0, look(7, 1, Duration::from_s(1)), {});
  EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null());
  board.post(0, look(7, 1, Duration::from_s(2)), {"note"});
  const auto seen = board.all();
  EXPECT_EQ(seen.evidence.seen.at(0).before["uptime_ns"], 1'000'000'000);
  EXPECT_EQ(seen.evidence.seen[0].now["uptime_ns"], 2'000'000'000);
  EXPECT_THAT(seen.notes, ElementsAre("note"));
  board.post(0, look(7, 2, Duration::from_s(3)), {});
  EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null()) << "another of the same pid";
}

TEST(TopBoardTest, DocumentsThatAreNoneHarmNothing) {
  Board board({""});
  for (const char* text : {"7", "{}", "[]", "null"}) {
    board.post(0, {{{nullptr, nlohmann::json::parse(text)}}, {}}, {});
    EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null());
  }
}

TEST(TopBoardTest, HostsThatEndAreToldAndWaitedForNoLonger) {
  Board board({"node1", "node2"});
  board.post(0, look(7, 1, {}), {});
  EXPECT_FALSE(board.has_looks(1));
  board.end(1, "gone");
  EXPECT_TRUE(board.has_looks(1));
  EXPECT_FALSE(board.has_looks(2));
  EXPECT_THAT(board.all().notes, ElementsAre("node2: gone"));
  EXPECT_THAT(board.all().evidence.seen, SizeIs(1));
  EXPECT_EQ(board.version(), 2U);
}

struct Heard {
  size_t looks = 0;
  std::string why;
};

Heard hear(const std::string& script) {
  Heard heard;
  heard.why = watch_remote({"sh", "-c", script}, std::stop_source().get_token(),
                           [&](const doctor::Evidence&) { ++heard.looks; });
  return heard;
}

TEST(TopRemoteTest, EachLineIsALook) {
  const Heard heard = hear(R"(printf '%s\n' '{"schema_version":1,"processes":[],"silent":[]}' \
                              '{"schema_version":1,"processes":[],"silent":[]}'; exit 3)");
  EXPECT_EQ(heard.looks, 2U);
  EXPECT_THAT(heard.why, HasSubstr("ended (exit 3)"));
}

TEST(TopRemoteTest, WhatIsNoLookEndsItInOneSentence) {
  for (const char* script : {"echo nonsense; exec sleep 1000", "echo; exec sleep 1000",
                             R"(echo '{"schema_version":2}'; exec sleep 1000)"}) {
    const Heard heard = hear(script);
    EXPECT_EQ(heard.looks, 0U);
    EXPECT_THAT(heard.why, testing::StartsWith("what it says is not from pacecar top: "));
  }
}

TEST(TopRemoteTest, TheLastComplaintIsTold) {
  EXPECT_THAT(hear("echo first >&2; printf 'Permission\\033 denied\\n' >&2; exit 255").why,
              HasSubstr("(exit 255, Permission? denied)"));
  EXPECT_THAT(watch_remote({"/no/such/ssh"}, std::stop_source().get_token(), {}),
              HasSubstr("cannot run /no/such/ssh"));
}

TEST(TopRemoteTest, StopsWhenToldTo) {
  // On the heap: in a frame, GCC 12 takes it for uninitialised.
  const auto ending = std::make_unique<std::stop_source>();
  size_t looks = 0;
  watch_remote({"sh", "-c",
                R"(echo '{"schema_version":1,"processes":[],"silent":[]}'; exec sleep 1000)"},
               ending->get_token(), [&](const doctor::Evidence&) {
                 ++looks;
                 ending->request_stop();
               });
  EXPECT_EQ(looks, 1U);
}

}  // namespace
}  // namespace pacecar::test
