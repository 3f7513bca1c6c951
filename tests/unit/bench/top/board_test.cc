// The board of `pacecar top`: looks at several hosts.
#include <gmock/gmock.h>

#include "bench/top/board.h"
#include "transport/api/state_document.h"

namespace pacecar::test::board_test {
namespace {

using namespace top;
using testing::ElementsAre;
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

TEST(TopBoardTest, LookIsPairedWithThePreviousOneOfItsProcess) {
  Board board({""});
  board.post(0, look(7, 1, Duration::from_s(1)), {});
  EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null());
  board.post(0, look(7, 1, Duration::from_s(2)), {"note"});
  const auto seen = board.all();
  EXPECT_EQ(seen.evidence.seen.at(0).before["uptime_ns"], 1'000'000'000);
  EXPECT_EQ(seen.evidence.seen[0].now["uptime_ns"], 2'000'000'000);
  EXPECT_THAT(seen.notes, ElementsAre("note"));
  board.post(0, look(7, 2, Duration::from_s(3)), {});
  EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null())
      << "another process of the same pid";
}

TEST(TopBoardTest, InvalidDocumentHasNoPreviousLook) {
  Board board({""});
  for (const char* text : {"7", "{}", "[]", "null"}) {
    board.post(0, {{{nullptr, nlohmann::json::parse(text)}}, {}}, {});
    EXPECT_TRUE(board.all().evidence.seen.at(0).before.is_null());
  }
}

TEST(TopBoardTest, HostThatEndsGivesANoteAndIsNotAwaited) {
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

}  // namespace
}  // namespace pacecar::test::board_test
