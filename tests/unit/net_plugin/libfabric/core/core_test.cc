// The provider's parts that do not depend on libfabric: frames, atomics, names.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/names.h"

namespace pacecar::fabric::core_test {
namespace {

std::vector<uint8_t> message_of(const Frame& frame, const std::vector<uint8_t>& payload) {
  std::vector<uint8_t> message(sizeof frame);
  std::memcpy(message.data(), &frame, sizeof frame);
  message.insert(message.end(), payload.begin(), payload.end());
  return message;
}

TEST(FiFrame, LastPayloadNeedsNoPadding) {
  const auto message = message_of({.kind = FrameKind::kWrite, .payload = 3}, {1, 2, 3});
  FrameReader reader(message);
  const auto view = reader.next();
  ASSERT_TRUE(view);
  EXPECT_EQ(std::vector<uint8_t>(view->payload.begin(), view->payload.end()),
            (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.whole());
}

TEST(FiFrame, ShortFrameIsRefused) {
  for (size_t bytes = 1; bytes < sizeof(Frame); ++bytes) {
    const std::vector<uint8_t> message(bytes, 1);
    FrameReader reader(message);
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.whole()) << bytes;
  }
}

TEST(FiFrame, PayloadBeyondTheMessageIsRefused) {
  const auto message = message_of({.kind = FrameKind::kMessage, .payload = 9}, {1, 2, 3, 4});
  FrameReader reader(message);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.whole());
}

TEST(FiFrame, UnknownKindIsRefused) {
  for (const int kind : {0, static_cast<int>(FrameKind::kBye) + 1, 255}) {
    const auto message = message_of({.kind = static_cast<FrameKind>(kind)}, {});
    EXPECT_FALSE(FrameReader(message).next()) << kind;
  }
}

// The numbers of fi_datatype.
enum class Datatype : uint8_t {
  kInt8 = 0,
  kInt32 = 4,
  kInt64 = 6,
  kDouble = 9,
  kFloatComplex = 10,
  kDoubleComplex = 11,
};

template <typename T>
T changed(AtomicOp op, Datatype type, T old, T operand, T comparand = T{}, T* before = nullptr) {
  T target = old;
  T result{};
  const auto bytes = [](const T& value) { return reinterpret_cast<const uint8_t*>(&value); };
  apply_atomic(static_cast<uint8_t>(op), static_cast<uint8_t>(type), 1,
               reinterpret_cast<uint8_t*>(&target), bytes(operand), bytes(comparand),
               reinterpret_cast<uint8_t*>(&result));
  if (before != nullptr) *before = result;
  return target;
}

TEST(FiAtomic, IntegerOperationsAreApplied) {
  const auto on = [](AtomicOp op, int32_t old, int32_t operand, int32_t comparand = 0) {
    return changed<int32_t>(op, Datatype::kInt32, old, operand, comparand);
  };
  EXPECT_EQ(on(AtomicOp::kMin, -3, 2), -3);
  EXPECT_EQ(on(AtomicOp::kMax, -3, 2), 2);
  EXPECT_EQ(on(AtomicOp::kSum, 7, -9), -2);
  EXPECT_EQ(on(AtomicOp::kSum, std::numeric_limits<int32_t>::max(), 1),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(on(AtomicOp::kProd, -4, 5), -20);
  EXPECT_EQ(on(AtomicOp::kLor, 0, 8), 1);
  EXPECT_EQ(on(AtomicOp::kLand, 4, 0), 0);
  EXPECT_EQ(on(AtomicOp::kLand, 4, 2), 1);
  EXPECT_EQ(on(AtomicOp::kLxor, 4, 2), 0);
  EXPECT_EQ(on(AtomicOp::kBor, 4, 3), 7);
  EXPECT_EQ(on(AtomicOp::kBand, 6, 3), 2);
  EXPECT_EQ(on(AtomicOp::kBxor, 6, 3), 5);
  EXPECT_EQ(on(AtomicOp::kRead, 6, 3), 6);
  EXPECT_EQ(on(AtomicOp::kWrite, 6, 3), 3);
  EXPECT_EQ(on(AtomicOp::kMswap, 0b1010, 0b0101, 0b0011), 0b1001);
}

// The comparand is the left operand, as in libfabric's manual.
TEST(FiAtomic, CompareSwapsCompareTheComparandWithTheTarget) {
  const auto swaps = [](AtomicOp op, int64_t old, int64_t comparand) {
    return changed<int64_t>(op, Datatype::kInt64, old, 99, comparand) == 99;
  };
  struct Case {
    AtomicOp op;
    bool less, equal, greater;  // whether it swaps if the comparand is less, equal, greater
  };
  for (const Case& one :
       {Case{AtomicOp::kCswap, false, true, false}, Case{AtomicOp::kCswapNe, true, false, true},
        Case{AtomicOp::kCswapLe, true, true, false}, Case{AtomicOp::kCswapLt, true, false, false},
        Case{AtomicOp::kCswapGe, false, true, true},
        Case{AtomicOp::kCswapGt, false, false, true}}) {
    EXPECT_EQ(swaps(one.op, 5, 4), one.less) << static_cast<int>(one.op);
    EXPECT_EQ(swaps(one.op, 5, 5), one.equal) << static_cast<int>(one.op);
    EXPECT_EQ(swaps(one.op, 5, 6), one.greater) << static_cast<int>(one.op);
  }
}

// The owner may store there at the same time, or have registered it for reads only.
TEST(FiAtomic, WhatStaysAsItWasIsNotStored) {
  constexpr size_t kPage = 4096;
  void* const page = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  for (const AtomicOp op : {AtomicOp::kRead, AtomicOp::kCswap, AtomicOp::kMin, AtomicOp::kBand}) {
    const int32_t operand = 7;
    const int32_t comparand = 1;
    int32_t before = 1;
    apply_atomic(static_cast<uint8_t>(op), static_cast<uint8_t>(Datatype::kInt32), 1,
                 static_cast<uint8_t*>(page), reinterpret_cast<const uint8_t*>(&operand),
                 reinterpret_cast<const uint8_t*>(&comparand), reinterpret_cast<uint8_t*>(&before));
    EXPECT_EQ(before, 0);
  }
  munmap(page, kPage);
}

TEST(FiAtomic, ResultIsTheOldValue) {
  double before = 0;
  EXPECT_EQ(changed(AtomicOp::kSum, Datatype::kDouble, 1.5, 2.0, 0.0, &before), 3.5);
  EXPECT_EQ(before, 1.5);
  using Complex = std::complex<float>;
  EXPECT_EQ(changed(AtomicOp::kProd, Datatype::kFloatComplex, Complex(0, 1), Complex(0, 1)),
            Complex(-1, 0));
}

TEST(FiAtomic, OnlyDefinedOperationsAreValid) {
  const auto valid = [](AtomicOp op, Datatype type, bool fetches, bool compares) {
    return atomic_valid(static_cast<uint8_t>(op), static_cast<uint8_t>(type), fetches, compares);
  };
  EXPECT_TRUE(valid(AtomicOp::kSum, Datatype::kDouble, false, false));
  EXPECT_FALSE(valid(AtomicOp::kBor, Datatype::kDouble, false, false));
  EXPECT_FALSE(valid(AtomicOp::kMin, Datatype::kFloatComplex, false, false));
  EXPECT_FALSE(valid(AtomicOp::kRead, Datatype::kInt8, false, false));
  EXPECT_TRUE(valid(AtomicOp::kRead, Datatype::kInt8, true, false));
  EXPECT_FALSE(valid(AtomicOp::kCswap, Datatype::kInt8, true, false));
  EXPECT_TRUE(valid(AtomicOp::kCswap, Datatype::kDoubleComplex, true, true));
  EXPECT_FALSE(valid(AtomicOp::kSum, Datatype::kInt8, true, true));
  EXPECT_FALSE(atomic_valid(kAtomicOps, 0, true, false));
  EXPECT_FALSE(atomic_valid(0, kDatatypes, true, false));
  EXPECT_EQ(datatype_bytes(kDatatypes), 0);
}

TEST(FiMatcher, AClaimWithoutAContextIsAClaim) {
  Matcher<int, int> matcher;
  matcher.add_unexpected(1, 5, 10);
  matcher.add_unexpected(1, 5, 11);
  EXPECT_EQ(matcher.claimed(nullptr), matcher.messages().end());
  matcher.messages().back().claimed_by = nullptr;
  ASSERT_NE(matcher.claimed(nullptr), matcher.messages().end());
  EXPECT_EQ(matcher.claimed(nullptr)->message, 11);
  EXPECT_EQ(matcher.message_for({.tag = 5})->message, 10);
}

TEST(FiNames, RepeatedNameIsFoundByItsOlderNumber) {
  Names names;
  const Address name{.port = 1};
  EXPECT_EQ(names.add(name), 0);
  EXPECT_EQ(names.add(name), 1);
  EXPECT_EQ(names.number_of(name), 0);
  EXPECT_TRUE(names.remove(0));
  EXPECT_EQ(names.number_of(name), 1);
  EXPECT_FALSE(names.remove(0));
  EXPECT_EQ(names.add({.port = 2}), 0);
}

}  // namespace
}  // namespace pacecar::fabric::core_test
