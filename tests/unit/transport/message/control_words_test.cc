// Control words that the peer writes into our memory.
#include "transport/message/control_words.h"

#include <gtest/gtest.h>

namespace pacecar::control_words_test {
namespace {

const LaneNote kNote{.epoch = 1,
                     .kind = 2,
                     .lanes = 3,
                     .next = 0x0102030405060708,
                     .done = {4, 5, 6, ~uint64_t{0}},
                     .number = 7};

TEST(LaneNote, NoteIsReadBackFromMemory) {
  const auto note = read_note(seal(kNote));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->epoch, kNote.epoch);
  EXPECT_EQ(note->kind, kNote.kind);
  EXPECT_EQ(note->lanes, kNote.lanes);
  EXPECT_EQ(note->next, kNote.next);
  EXPECT_TRUE(std::equal(std::begin(note->done), std::end(note->done), kNote.done));
  EXPECT_EQ(note->number, kNote.number);
}

TEST(LaneNote, PartlyWrittenNoteIsRefused) {
  LaneNote newer = kNote;
  newer.epoch = 9;
  newer.next = 10;
  for (uint64_t& word : newer.done) word += 11;
  newer.number = 8;
  const NoteWords after = seal(newer);
  for (size_t word = 0; word < after.size(); ++word) {
    NoteWords mixed = after;
    mixed[word] = seal(kNote)[word];
    EXPECT_FALSE(read_note(mixed)) << word;
  }
}

TEST(LaneNote, UnwrittenMemoryIsANoteWithNumberZero) {
  const auto none = read_note({});
  ASSERT_TRUE(none) << "zeroed memory is a valid note";
  EXPECT_EQ(none->number, 0U);
}

// FNV-1a over words. Ends of different builds must compute the same checksum.
TEST(LaneNote, ChecksumIsFnv1a) {
  NoteWords words{};
  words.back() = 1;
  EXPECT_EQ(note_checksum(words), 0x100000001B3U);
  words[words.size() - 2] = 2;
  EXPECT_EQ(note_checksum(words), (0x100000001B3U * 2 ^ 1) * 0x100000001B3U);
  words[0] = 1234;  // the checksum's own word
  EXPECT_EQ(note_checksum(words), (0x100000001B3U * 2 ^ 1) * 0x100000001B3U);
}

TEST(Immediate, ImmediateHoldsItsThreeNumbers) {
  const uint32_t packed = Immediate{.connection = 1023, .slot = 0x5A, .writes = 0x1234}.pack();
  EXPECT_EQ(packed, 0xFFD69234U);
  const Immediate back = Immediate::unpack(packed);
  EXPECT_EQ(back.connection, 1023U);
  EXPECT_EQ(back.slot, 0x5AU);
  EXPECT_EQ(back.writes, 0x1234U);
}

TEST(CloseWord, CloseWordHoldsACountAndAClosedFlag) {
  EXPECT_FALSE(CloseWord::closed(0));
  EXPECT_TRUE(CloseWord::closed(CloseWord::pack(0)));
  EXPECT_EQ(CloseWord::count(CloseWord::pack(12345)), 12345U);
}

}  // namespace
}  // namespace pacecar::control_words_test
