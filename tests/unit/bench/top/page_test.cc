// The page of `pacecar top`, and its keys.
#include "bench/top/page.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace pacecar::test::page_test {
namespace {

using namespace top;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Rows rows(size_t flows) {
  Rows made;
  made.processes = 1;
  Cells nic(kNicTitles.size());
  nic[0] = " mlx5_0";
  nic[3] = "12.3 Gb/s";
  made.nics.push_back(nic);
  for (size_t i = 0; i < flows; ++i) {
    FlowRow row{.cells = Cells(kFlowTitles.size()), .why = "it is so", .order = {}};
    row.cells[0] = i == 0 ? "!no-buffer" : " line";
    row.cells[3] = "peer-" + std::to_string(i);
    row.order[0].first = static_cast<double>(i);
    made.flows.push_back(row);
  }
  return made;
}

std::string text_of(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) text += line.text + "\n";
  return text;
}

TEST(TopPageTest, PageShowsNicsFlowsAndTrouble) {
  View view;
  const auto lines = page_of(rows(2), view, {.time = "12:00:00", .notes = {"node2: gone"}}, 0);
  const std::string text = text_of(lines);
  EXPECT_THAT(text, StartsWith("pacecar top  12:00:00  1 host, 1 processes, 1 NICs, 2 flows"));
  EXPECT_THAT(text, HasSubstr("\n! node2: gone\n"));
  EXPECT_THAT(text, HasSubstr("\nit is so\n")) << "why the first flow is in trouble";
  EXPECT_THAT(text, HasSubstr("12.3 Gb/s"));
  EXPECT_THAT(text, HasSubstr("peer-1"));
  EXPECT_THAT(text, HasSubstr("\n!no-buffer"));
}

// A style alone does not show trouble: some readers do not see colours, and logs have none.
TEST(TopPageTest, TroubleIsMarkedInTheTextItself) {
  View view;
  for (const Line& line : page_of(rows(3), view, {.notes = {"x"}}, 0)) {
    EXPECT_EQ(line.style == Style::kTrouble, line.text.starts_with('!')) << line.text;
  }
}

TEST(TopPageTest, PageFitsTheScreen) {
  View view;
  for (size_t height = 1; height < 40; ++height) {
    EXPECT_LE(page_of(rows(500), view, {}, height).size(), height);
  }
  Rows many = rows(5);
  many.nics.resize(300, many.nics[0]);
  const std::string text = text_of(page_of(many, view, {}, 40));
  EXPECT_THAT(text, HasSubstr("and 288 more NICs"));
  EXPECT_THAT(text, HasSubstr("peer-4")) << "NICs leave room for flows";
}

TEST(TopPageTest, ScrollingEndsAtTheLastFlow) {
  View view{.first = 1000};
  EXPECT_THAT(text_of(page_of(rows(3), view, {}, 30)), HasSubstr("peer-2"));
  EXPECT_EQ(view.first, 2U);
  page_of(rows(0), view, {}, 30);
  EXPECT_EQ(view.first, 0U);
}

void type(View& view, std::string_view keys) {
  for (const char key : keys) press(view, key);
}

TEST(TopKeysTest, KeysSortPauseHelpAndQuit) {
  View view;
  press(view, 's');
  EXPECT_EQ(kSortColumns[view.sort], "goodput");
  type(view, "SS");
  EXPECT_EQ(kSortColumns[view.sort], "process") << "the columns wrap around";
  type(view, "r ?");
  EXPECT_TRUE(view.reversed && view.paused && view.help);
  const std::string text = text_of(page_of(rows(1), view, {}, 0));
  EXPECT_THAT(text, HasSubstr("by process (reversed)"));
  EXPECT_THAT(text, HasSubstr("PAUSED"));
  EXPECT_THAT(text, HasSubstr("q quit"));
  EXPECT_FALSE(view.ends);
  press(view, 'q');
  EXPECT_TRUE(view.ends);
}

TEST(TopKeysTest, TypedFilterSelectsFlows) {
  View view;
  type(view, "/peer-1q");
  EXPECT_TRUE(view.typing);
  EXPECT_FALSE(view.ends) << "a letter of the filter";
  press(view, kKeyErase);
  EXPECT_THAT(text_of(page_of(rows(3), view, {}, 0)), HasSubstr("filter: peer-1_"));
  press(view, kKeyEnter);
  const std::string text = text_of(page_of(rows(3), view, {}, 0));
  EXPECT_THAT(text, HasSubstr("peer-1"));
  EXPECT_THAT(text, Not(HasSubstr("peer-2")));
  press(view, kKeyEscape);
  EXPECT_EQ(view.filter, "");
  type(view, "/");
  for (int key = -5; key < 3000; ++key) {
    if (key != kKeyEscape && key != kKeyEnter && key != '\r') press(view, key);
  }
  EXPECT_TRUE(std::ranges::all_of(view.filter, [](char c) { return c >= ' ' && c <= '~'; }));
  EXPECT_LE(view.filter.size(), 64U);
}

TEST(TopKeysTest, ArrowAndPageKeysScroll) {
  View view;
  press(view, kKeyUp);
  EXPECT_EQ(view.first, 0U);
  press(view, kKeyDown);
  press(view, kKeyPageDown);
  EXPECT_EQ(view.first, 11U);
  press(view, kKeyPageUp);
  press(view, kKeyUp);
  EXPECT_EQ(view.first, 0U);
}

}  // namespace
}  // namespace pacecar::test::page_test
