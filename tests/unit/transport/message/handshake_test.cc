#include "transport/message/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pacecar::handshake_test {
namespace {

QueuePairAddress address(uint8_t size) {
  QueuePairAddress address{.size = size};
  for (uint8_t i = 0; i < size; ++i) address.bytes[i] = static_cast<uint8_t>(i + size);
  return address;
}

const Offer kOffer{.sender = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                   .flow = 0x1122334455667788,
                   .joined = true,
                   .obeys = allocator_name("credit"),
                   .weight = 64,
                   .eager = 5000,
                   .number = 1023,
                   .count = 0x123456789ABCDEF0,
                   .end = {address(48), address(64), {0xAABBCCDDEEFF0011, 0x1234}},
                   .table = {0x99, 0xFFFFFFFF}};
const Answer kAnswer{
    .end = {address(0), address(7), {1, 2}}, .eager = 4000, .table = {0xFFFFFFFFFFFFFFFF, 9}};

void expect_same(const FlowEnd& a, const FlowEnd& b) {
  EXPECT_TRUE(std::ranges::equal(a.data.view(), b.data.view()));
  EXPECT_TRUE(std::ranges::equal(a.control.view(), b.control.view()));
  EXPECT_EQ(a.words.address, b.words.address);
  EXPECT_EQ(a.words.key, b.words.key);
}

TEST(Handshake, OfferSurvivesItsEncoding) {
  const auto offer = decode_offer(encode(kOffer));
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->sender, kOffer.sender);
  EXPECT_EQ(offer->flow, kOffer.flow);
  EXPECT_EQ(offer->joined, kOffer.joined);
  EXPECT_EQ(offer->obeys, kOffer.obeys);
  EXPECT_EQ(offer->weight, kOffer.weight);
  EXPECT_EQ(offer->eager, kOffer.eager);
  EXPECT_EQ(offer->number, kOffer.number);
  EXPECT_EQ(offer->count, kOffer.count);
  expect_same(offer->end, kOffer.end);
  EXPECT_EQ(offer->table.address, kOffer.table.address);
  EXPECT_EQ(offer->table.key, kOffer.table.key);
}

TEST(Handshake, AnswerSurvivesItsEncoding) {
  const auto answer = decode_answer(encode(kAnswer));
  ASSERT_TRUE(answer);
  expect_same(answer->end, kAnswer.end);
  EXPECT_EQ(answer->eager, kAnswer.eager);
  EXPECT_EQ(answer->table.address, kAnswer.table.address);
  EXPECT_EQ(answer->table.key, kAnswer.table.key);
}

template <typename Decode>
void expect_other_lengths_refused(std::vector<uint8_t> good, Decode decode) {
  for (size_t size = 0; size < good.size(); ++size) {
    // A copy of exactly this size, so that the address sanitizer sees every overrun.
    const auto result = decode(std::vector<uint8_t>(good.begin(), good.begin() + size));
    ASSERT_FALSE(result) << size;
    EXPECT_EQ(result.error().code, ErrorCode::kPeer);
  }
  good.push_back(0);
  EXPECT_FALSE(decode(good));
}

TEST(Handshake, TruncatedAndTooLongMessagesAreRefused) {
  expect_other_lengths_refused(encode(kOffer), [](const auto& b) { return decode_offer(b); });
  expect_other_lengths_refused(encode(kAnswer), [](const auto& b) { return decode_answer(b); });
}

TEST(Handshake, OfferDoesNotDecodeAsAnswerNorAnswerAsOffer) {
  EXPECT_FALSE(decode_answer(encode(kOffer)));
  EXPECT_FALSE(decode_offer(encode(kAnswer)));
}

TEST(Handshake, OtherVersionIsRefused) {
  auto offer = encode(kOffer);
  ++offer[3];
  EXPECT_FALSE(decode_offer(offer));
}

// The message has the right size, but the length of an address in it is too large.
TEST(Handshake, TooLongAddressIsRefused) {
  constexpr size_t kControlSize = 4 + 16 + 8 + 4 + 16 + 4 + 4 + 4 + 8 + 4 + 48;
  auto offer = encode(kOffer);
  ASSERT_EQ(offer[kControlSize + 3], 64);
  offer[kControlSize + 3] = 65;
  EXPECT_FALSE(decode_offer(offer));
}

TEST(Handshake, InvalidJoinedFlagIsRefused) {
  constexpr size_t kJoined = 4 + 16 + 8 + 3;
  auto offer = encode(kOffer);
  ASSERT_EQ(offer[kJoined], 1);
  offer[kJoined] = 2;
  EXPECT_FALSE(decode_offer(offer));
}

TEST(Handshake, ImpossibleWeightIsRefused) {
  for (const uint32_t weight : {0U, 65U, ~0U}) {
    Offer offer = kOffer;
    offer.weight = weight;
    EXPECT_FALSE(decode_offer(encode(offer))) << weight;
  }
}

TEST(Handshake, ImpossibleConnectionNumberIsRefused) {
  Offer offer = kOffer;
  offer.number = 1024;
  EXPECT_FALSE(decode_offer(encode(offer)));
}

TEST(Handshake, TooLargeEagerSizeIsRefused) {
  Offer offer = kOffer;
  offer.eager = kMaxEager + 1;
  EXPECT_FALSE(decode_offer(encode(offer)));
}

}  // namespace
}  // namespace pacecar::handshake_test
