// Eager messages: cells, trains and their receiver, one call at a time.
#include "transport/message/eager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "transport/message/control_words.h"

namespace pacecar::eager_test {
namespace {

constexpr Bytes kLarge = 12000;  // larger than a tiny cell
constexpr EagerCells kCells(kLarge);
constexpr RemoteAddress kRemoteCells{.address = 0x100000, .key = 7};

TEST(EagerCells, CellsHoldMessagesUpToTheirSize) {
  EXPECT_FALSE(EagerCells().takes(0)) << "no cells";
  EXPECT_EQ(EagerCells().bytes(), 0U);
  EXPECT_TRUE(EagerCells(1).takes(1));
  EXPECT_TRUE(kCells.takes(kLarge));
  EXPECT_FALSE(kCells.takes(kLarge + 1));
  EXPECT_TRUE(kCells.tiny(EagerCells::kTiny));
  EXPECT_FALSE(kCells.tiny(EagerCells::kTiny + 1));
  EXPECT_FALSE(EagerCells(100).tiny(101));
}

TEST(EagerCells, CellsAreContiguousOnCacheLines) {
  for (const Bytes message : {Bytes{1}, Bytes{40}, Bytes{41}, EagerCells::kTiny, kLarge}) {
    const EagerCells cells(message);
    Bytes end = 0;
    for (uint32_t cell = 0; cell < EagerCells::kCells; ++cell) {
      EXPECT_EQ(cells.offset(cell) % 64, 0U) << cell;
      EXPECT_GE(cells.offset(cell), end) << cell;
      EXPECT_LT(cells.offset(cell), end + 64) << "less than a cache line between cells";
      end = cells.offset(cell) + sizeof(EagerHeader) + cells.capacity(cell);
    }
    EXPECT_GE(cells.bytes(), end);
    EXPECT_LT(cells.bytes(), end + 64);
  }
}

// Source and inbox share one memory.
class EagerTest : public testing::Test {
 protected:
  EagerTest() {
    source_.enable(kCells, memory_.data(), 5, kRemoteCells);
    inbox_.enable(kCells, memory_.data());  // so a message is in the inbox's memory at once
  }
  uint8_t send(Bytes size, int32_t tag = 0) { return source_.send(data_.data(), size, 0, tag); }
  // Sends one message in a train of its own, which arrives.
  uint8_t deliver(Bytes size) {
    const uint8_t cell = send(size);
    source_.on_left(cell);
    Bytes payload = 0;
    EXPECT_TRUE(inbox_.on_write(cell, source_.write(cell, 0).length, &payload));
    EXPECT_EQ(payload, size);
    source_.on_write_done(cell);
    return cell;
  }
  void take_oldest() {
    inbox_.at(0)->taken = true;
    inbox_.free_taken();
  }

  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kCells.bytes());
  std::vector<uint8_t> data_ = std::vector<uint8_t>(kLarge, 'x');
  EagerSource source_;
  EagerInbox inbox_;
};

TEST_F(EagerTest, AcknowledgementsAreAwaitedOnceHalfOfTheCellsAreAway) {
  for (const auto& [size, cells] :
       {std::pair(Bytes{1}, EagerCells::kTinyCells), std::pair(kLarge, EagerCells::kLargeCells)}) {
    for (uint32_t used = 1; used <= cells; ++used) {
      const uint8_t cell = send(size);
      EXPECT_EQ(source_.write(cell, 0).awaited, 2 * used >= cells) << used;
      source_.on_left(cell);
    }
  }
}

TEST_F(EagerTest, TrainTakesMessagesThatFitIntoItsCell) {
  const Bytes half = EagerCells::kTiny / 2;
  const uint8_t cell = send(half);
  EXPECT_EQ(source_.write(cell, 0).length, sizeof(EagerHeader) + half);
  const Bytes rest = EagerCells::kTiny - half - sizeof(EagerHeader);
  EXPECT_TRUE(source_.joins_train(rest));
  EXPECT_FALSE(source_.joins_train(rest + 1));
  EXPECT_EQ(send(rest), cell);
  EXPECT_EQ(source_.write(cell, 0).length, kCells.room(cell));
  EXPECT_EQ(source_.on_left(cell), half + rest);
  EXPECT_FALSE(source_.joins_train(0)) << "the train has left";
  EXPECT_EQ(source_.write(cell, 0).remote, kRemoteCells.address + kCells.offset(cell));
  EXPECT_EQ(source_.write(cell, 0).remote_key, kRemoteCells.key);
  EXPECT_EQ(source_.on_write_done(cell), 2U) << "messages";
}

TEST_F(EagerTest, TinyAndLargeMessagesHaveCellsOfTheirOwn) {
  for (uint32_t i = 0; i < EagerCells::kTinyCells; ++i) {
    EXPECT_TRUE(source_.takes(EagerCells::kTiny));
    EXPECT_EQ(deliver(EagerCells::kTiny), i);
  }
  EXPECT_FALSE(source_.takes(EagerCells::kTiny));
  EXPECT_FALSE(source_.will_take(EagerCells::kTiny)) << "the receiver has taken no message";
  for (uint32_t i = 0; i < EagerCells::kLargeCells; ++i) {
    EXPECT_TRUE(source_.will_take(kLarge));
    EXPECT_EQ(deliver(kLarge), EagerCells::kTinyCells + i);
  }
  EXPECT_FALSE(source_.takes(kLarge));
  EXPECT_FALSE(source_.takes(kLarge + 1));
}

TEST_F(EagerTest, CopyHoldsEveryByte) {
  for (const Bytes size : {0, 1, 2, 100}) {
    const WorkRequest write = source_.write(source_.copy(data_.data(), size, kRemoteCells, 3), 2);
    EXPECT_EQ(std::count(write.local, write.local + 200, 'x'), static_cast<long>(size));
    EXPECT_EQ(write.length, size);
    EXPECT_EQ(write.remote, kRemoteCells.address);
    EXPECT_EQ(Immediate::unpack(write.immediate).slot, 3U);
    EXPECT_EQ(Immediate::unpack(write.immediate).connection, 2U);
  }
}

TEST_F(EagerTest, CopyOccupiesItsCellUntilItsWriteIsDone) {
  for (uint32_t i = 0; i < EagerCells::kTinyCells; ++i) {
    EXPECT_EQ(source_.copy(data_.data(), 10, kRemoteCells, 0), i);
  }
  EXPECT_FALSE(source_.has_room(10));
  EXPECT_FALSE(source_.takes(10));
  EXPECT_TRUE(source_.will_take(10)) << "a cell is free when its write is done";
  source_.on_write_done(3);
  EXPECT_TRUE(source_.takes(10));
  EXPECT_EQ(send(10), 3U);
}

TEST_F(EagerTest, MessageNumbersLimitMessagesInFlight) {
  for (uint32_t i = 0; i < EagerCells::kMessages; ++i) {
    ASSERT_TRUE(source_.takes(0)) << i;
    send(0);
  }
  EXPECT_FALSE(source_.takes(0)) << "no number is free, though the train has room";
  EXPECT_FALSE(source_.will_take(0));
  EXPECT_TRUE(source_.on_freed(1));
  EXPECT_TRUE(source_.takes(0));
  EXPECT_TRUE(source_.will_take(0));
}

TEST_F(EagerTest, TakenMessagesFreeTheirCells) {
  deliver(10);
  deliver(10);
  EXPECT_FALSE(source_.on_freed(3)) << "more messages than were sent";
  EXPECT_TRUE(source_.on_freed(1));
  EXPECT_EQ(send(10), 0U) << "the first cell is free again";
  source_.on_left(0);
  EXPECT_TRUE(source_.on_freed(0)) << "an older count is accepted";
  EXPECT_EQ(send(10), 2U) << "the older count changes nothing";
}

TEST_F(EagerTest, MessagesAreFoundByTheirOrderOfSending) {
  const uint8_t first = send(3, 11);
  source_.on_left(first);
  const uint8_t second = send(4, 12);
  Bytes payload = 0;
  ASSERT_TRUE(inbox_.on_write(second, source_.write(second, 0).length, &payload));
  EXPECT_EQ(inbox_.at(0), nullptr) << "the first message has not arrived yet";
  ASSERT_NE(inbox_.at(1), nullptr);
  EXPECT_EQ(inbox_.at(1)->header.tag, 12);
  ASSERT_TRUE(inbox_.on_write(first, source_.write(first, 0).length, &payload));
  EXPECT_EQ(inbox_.at(0)->header.tag, 11);
  EXPECT_EQ(inbox_.at(0)->header.size, 3U);
  EXPECT_EQ(inbox_.at(2), nullptr);
  EXPECT_EQ(inbox_.at(EagerCells::kMessages), nullptr);
  EXPECT_FALSE(inbox_.empty());
  take_oldest();
  take_oldest();
  EXPECT_TRUE(inbox_.empty());
  EXPECT_EQ(inbox_.freed(), 2U);
}

TEST_F(EagerTest, InvalidWritesAreRefused) {
  Bytes payload = 0;
  const uint8_t cell = send(8);
  const Bytes bytes = source_.write(cell, 0).length;
  EXPECT_FALSE(inbox_.on_write(EagerCells::kCells, bytes, &payload)) << "no such cell";
  EXPECT_FALSE(inbox_.on_write(cell, 0, &payload));
  EXPECT_FALSE(inbox_.on_write(cell, kCells.room(cell) + 1, &payload));
  EXPECT_FALSE(inbox_.on_write(cell, bytes - 1, &payload)) << "the last payload is cut off";
  EXPECT_FALSE(inbox_.on_write(cell, sizeof(EagerHeader) - 1, &payload));
  EXPECT_TRUE(inbox_.on_write(cell, bytes, &payload));
  EXPECT_FALSE(inbox_.on_write(cell, bytes, &payload)) << "the cell is in use";
  EagerInbox without;
  EXPECT_FALSE(without.on_write(0, 24, &payload));
}

TEST_F(EagerTest, FreedTinyCellsAreReportedAfterHalf) {
  EXPECT_FALSE(inbox_.many_unreported());
  for (uint32_t i = 0; i < EagerCells::kTinyCells / 2; ++i) {
    EXPECT_FALSE(inbox_.many_unreported()) << i;
    deliver(10);
    take_oldest();
  }
  EXPECT_TRUE(inbox_.many_unreported());
}

TEST_F(EagerTest, FreedLargeCellsAreReportedBeforeTheLast) {
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < EagerCells::kLargeCells - 1; ++i) {
      EXPECT_FALSE(inbox_.many_unreported()) << i;
      deliver(kLarge);
      take_oldest();
    }
    EXPECT_TRUE(inbox_.many_unreported());
    inbox_.on_reported();
    EXPECT_TRUE(source_.on_freed(inbox_.freed()));
  }
}

TEST_F(EagerTest, ReportedMessagesDoNotCountAgain) {
  for (int round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < EagerCells::kTinyCells / 2; ++i) {
      EXPECT_FALSE(inbox_.many_unreported()) << i;
      deliver(10);
      take_oldest();
    }
    EXPECT_TRUE(inbox_.many_unreported());
    inbox_.on_reported();
    EXPECT_TRUE(source_.on_freed(inbox_.freed()));
  }
  EXPECT_FALSE(inbox_.many_unreported());
}

TEST_F(EagerTest, FreedNumbersAreReportedAfterHalf) {
  uint8_t cell = 0;
  for (uint32_t i = 0; i < EagerCells::kMessages / 2; ++i) cell = send(0);
  Bytes payload = 0;
  ASSERT_TRUE(inbox_.on_write(cell, source_.write(cell, 0).length, &payload));
  for (uint32_t i = 0; i < EagerCells::kMessages / 2; ++i) {
    EXPECT_FALSE(inbox_.many_unreported()) << i;
    take_oldest();
  }
  EXPECT_TRUE(inbox_.many_unreported());
  inbox_.on_reported();
  EXPECT_FALSE(inbox_.many_unreported());
}

}  // namespace
}  // namespace pacecar::eager_test
