// Kernels: how they find their works, their reports of works, and how they end.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/device_world.h"

namespace pacecar::kernel_test {
namespace {

using nccl::cpu::Algorithm;
using nccl::cpu::Function;
using nccl::cpu::Kernel;
using nccl::cpu::Layout;
using nccl::cpu::layout_of;
using nccl::cpu::Library;
using nccl::cpu::Operation;
using nccl::cpu::Protocol;
using nccl::cpu::Type;
using test::CollectiveFields;
using test::DeviceLink;
using test::DeviceWorld;
using test::LaunchArguments;
using test::SendReceiveFields;
using Kind = LaunchArguments::Kind;
using Storage = LaunchArguments::Storage;
using Work = std::vector<char>;

constexpr std::array kVersions{22203, 22809, 22907};
constexpr int kRanks = 3;
constexpr int kChannels = 4;

// The functions of these tests, by number.
enum : uint32_t { kSendReceive, kSumOfInts, kSumOfIntsInLl, kOnNvls };
Library library(int version) {
  return {*layout_of(version),
          {{.operation = Operation::kSendReceive},
           {.operation = Operation::kAllReduce, .type = Type::kInt32},
           {.operation = Operation::kAllReduce, .type = Type::kInt32, .protocol = Protocol::kLl},
           {.operation = Operation::kAllReduce, .algorithm = Algorithm::kNvls}}};
}

// Three ranks in rings of four channels.
class Rings : public DeviceWorld {
 public:
  explicit Rings(int version)
      : DeviceWorld(*layout_of(version), kRanks, kChannels, {},
                    [](int) { return DeviceLink::Fifo::kNone; }) {
    for (int channel = 0; channel < kChannels; ++channel) set_ring(channel, {2, 0, 1});
  }

  std::vector<LaunchArguments> arguments(uint64_t channels, Storage storage = Storage::kArguments) {
    std::vector<LaunchArguments> all;
    for (size_t i = 0; i < kRanks; ++i) all.emplace_back(rank(i).address(), channels, storage);
    return all;
  }
};

// An all-reduce: of each of the channels, the same number of elements.
class SumOfRanks {
 public:
  SumOfRanks(uint32_t lowest, uint32_t highest, int first)
      : lowest_(lowest), highest_(highest), first_(first) {
    for (int rank = 0; rank < kRanks; ++rank) {
      outputs_.emplace_back(inputs_.emplace_back(kCount * (highest - lowest + 1)).size());
      for (size_t i = 0; i < inputs_.back().size(); ++i) {
        inputs_.back()[i] = first + static_cast<int>(i) + 1000 * rank;
      }
    }
  }

  Work work(const Layout& layout, size_t rank, bool profiled = false) {
    CollectiveFields fields{.lowest = lowest_,
                            .highest = highest_,
                            .send = reinterpret_cast<const char*>(inputs_[rank].data()),
                            .receive = reinterpret_cast<char*>(outputs_[rank].data()),
                            .profiled = profiled};
    fields.counts = {kCount, highest_ > lowest_ + 1 ? kCount : 0, highest_ > lowest_ ? kCount : 0};
    return fields.bytes(layout);
  }
  bool good() const {
    for (const auto& output : outputs_) {
      for (size_t i = 0; i < output.size(); ++i) {
        if (output[i] != kRanks * (first_ + static_cast<int>(i)) + 3000) return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kCount = 333;

  uint32_t lowest_;
  uint32_t highest_;
  int first_;
  std::vector<std::vector<int>> inputs_;
  std::vector<std::vector<int>> outputs_;
};

// --- where works are ---

TEST(Kernel, FindsItsWorksInEveryStorage) {
  for (const int version : kVersions) {
    for (const Storage storage : {Storage::kArguments, Storage::kFifo, Storage::kPersistent}) {
      const Library functions = library(version);
      Rings rings(version);
      SumOfRanks one(0, 3, 1);
      SumOfRanks other(0, 3, 50);
      auto arguments = rings.arguments(0b1111, storage);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        arguments[rank].add_layer(
            Kind::kCollective, kSumOfInts,
            {one.work(functions.layout, rank), other.work(functions.layout, rank)});
      }
      ASSERT_TRUE(Rings::run(functions, arguments, 1));
      EXPECT_TRUE(one.good());
      EXPECT_TRUE(other.good());
      // Only the older version writes it, and only for its FIFO.
      const bool reports = version == 22203 && storage == Storage::kFifo;
      for (int channel = 0; channel < kChannels; ++channel) {
        EXPECT_EQ(rings.rank(1).consumed(channel), reports ? arguments[1].end_in_fifo() : 0);
      }
    }
  }
}

TEST(Kernel, GoesFromBatchToBatch) {
  for (const int version : kVersions) {
    const Library functions = library(version);
    Rings rings(version);
    std::vector<SumOfRanks> sums;
    for (int i = 0; i < 5; ++i) sums.emplace_back(0, 3, 10 * i);
    auto arguments = rings.arguments(0b1111, Storage::kFifo);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const auto work = [&](size_t i) { return sums[i].work(functions.layout, rank); };
      arguments[rank].add_layer(Kind::kCollective, kSumOfInts, {work(0), work(1)});
      arguments[rank].add_layer(Kind::kCollective, kSumOfInts, {work(2)}, true);
      arguments[rank].add_layer(Kind::kCollective, kSumOfIntsInLl, {work(3)});
      arguments[rank].add_layer(Kind::kCollective, kSumOfInts, {work(4)});
    }
    ASSERT_TRUE(Rings::run(functions, arguments, 2));
    for (const SumOfRanks& sum : sums) EXPECT_TRUE(sum.good());
    if (version != 22203) continue;
    EXPECT_EQ(rings.rank(0).consumed(2), arguments[0].end_in_fifo());
  }
}

TEST(Kernel, UsesTheChannelsOfItsMask) {
  const Library functions = library(22907);
  Rings rings(22907);
  SumOfRanks one(1, 1, 7);
  SumOfRanks other(3, 3, 70);
  auto arguments = rings.arguments(0b1010);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    // The first block has both, and does not wait for the second, which has only its own.
    arguments[rank].add_layer(
        Kind::kCollective, kSumOfInts,
        {one.work(functions.layout, rank), other.work(functions.layout, rank)});
    arguments[rank].choose(0, 0, 0b01);
    arguments[rank].choose(0, 1, 0b10);
  }
  ASSERT_TRUE(Rings::run(functions, arguments, 3));
  EXPECT_TRUE(one.good());
  EXPECT_TRUE(other.good());
  for (int channel = 0; channel < kChannels; ++channel) {
    EXPECT_EQ(rings.rank(0).step(channel, 1, true) > 0, channel % 2 == 1) << channel;
  }
}

TEST(Kernel, KeepsACopyOfItsArguments) {
  const Library functions = library(22809);
  Rings rings(22809);
  SumOfRanks sum(0, 0, 3);
  auto arguments = rings.arguments(0b1);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    arguments[rank].add_layer(Kind::kCollective, kSumOfInts, {sum.work(functions.layout, rank)});
    std::vector<char> bytes = arguments[rank].bytes();
    kernels.push_back(std::make_unique<Kernel>(functions, bytes.data(), bytes.size(), 1));
    bytes.assign(bytes.size(), 'x');
  }
  bool ended = false;
  for (int turn = 0; turn < 10'000 && !ended; ++turn) {
    ended = true;
    for (auto& kernel : kernels) ended = kernel->advance() && ended;
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(sum.good());
}

// Signed and unsigned averages share a kernel, whose operand says which it is; in the older
// version, each has its own.
TEST(Kernel, DividesSumsAsItsOperandSays) {
  for (const int version : kVersions) {
    for (const bool is_signed : {false, true}) {
      const Layout& layout = *layout_of(version);
      const bool own_kernel = version == 22203;
      Library functions{layout, {{.operation = Operation::kAllReduce}}};
      functions.functions[0].reduction = nccl::cpu::Reduction::kSumPostDivided;
      functions.functions[0].type = own_kernel && !is_signed ? Type::kUint8 : Type::kInt8;
      CollectiveFields fields{.counts = {100, 0, 0}};
      fields.operand = own_kernel ? kRanks : kRanks << 1 | (is_signed ? 1 : 0);
      const int value = is_signed ? -40 : 80;
      Rings rings(version);
      auto arguments = rings.arguments(1);
      std::vector<std::vector<char>> buffers(kRanks,
                                             std::vector<char>(100, static_cast<char>(value)));
      for (size_t rank = 0; rank < kRanks; ++rank) {
        fields.send = fields.receive = buffers[rank].data();
        arguments[rank].add_layer(Kind::kCollective, 0, {fields.bytes(layout)});
      }
      ASSERT_TRUE(Rings::run(functions, arguments, 1));
      for (const auto& buffer : buffers) {
        EXPECT_EQ(buffer, std::vector<char>(100, static_cast<char>(value)));
      }
    }
  }
}

// --- reports ---

TEST(Kernel, NotesTimesOfTheWorksThatAreProfiled) {
  for (const int version : {22809, 22907}) {
    const Library functions = library(version);
    Rings rings(version);
    std::vector<SumOfRanks> sums;
    for (int i = 0; i < 3; ++i) sums.emplace_back(1, 2, i);
    for (uint64_t round = 0; round < 30; ++round) {  // the 64 records are used again
      auto arguments = rings.arguments(0b110);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        const auto work = [&](size_t i, bool profiled) {
          return sums[i].work(functions.layout, rank, profiled);
        };
        arguments[rank].add_layer(Kind::kCollective, kSumOfInts, {work(0, false), work(1, true)});
        arguments[rank].add_layer(Kind::kCollective, kSumOfIntsInLl, {work(2, true)});
      }
      ASSERT_TRUE(Rings::run(functions, arguments, round));
      for (const int channel : {1, 2}) {
        const auto& rank = rings.rank(0);
        const uint64_t before = 3 * round;
        EXPECT_EQ(rings.rank(0).work_counter(channel), before + 3);
        for (const uint64_t number : {before + 2, before + 3}) {
          const auto began = rank.record(channel, true, number);
          const auto ended = rank.record(channel, false, number);
          EXPECT_EQ(began.number, number);
          EXPECT_EQ(ended.number, number);
          EXPECT_GT(began.time, 0U);
          EXPECT_GE(ended.time, began.time);
        }
        EXPECT_NE(rank.record(channel, true, before + 1).number, before + 1);
      }
      EXPECT_EQ(rings.rank(0).work_counter(0), 0U);
    }
  }
}

TEST(Kernel, NotesTimesOfSendsThatAreProfiled) {
  const Library functions = library(22907);
  Rings rings(22907);
  char bytes[2] = {1, 2};
  SendReceiveFields work;  // to itself
  work.send = {bytes, 1, 0, 1, 1, false};
  work.receive = {bytes + 1, 1, 0, 1, 1, false};
  work.profiled = true;
  std::vector<LaunchArguments> arguments;
  arguments.emplace_back(rings.rank(0).address(), 1)
      .add_layer(Kind::kSendReceive, kSendReceive, {work.bytes()});
  ASSERT_TRUE(Rings::run(functions, arguments, 1));
  EXPECT_EQ(bytes[1], 1);
  EXPECT_EQ(rings.rank(0).work_counter(0), 1U);
  EXPECT_EQ(rings.rank(0).record(0, true, 1).number, 1U);
  EXPECT_EQ(rings.rank(0).record(0, false, 1).number, 1U);
}

// --- how it ends ---

TEST(Kernel, EndsWhenNcclAborts) {
  for (const uint32_t function : {kSumOfInts, kSumOfIntsInLl, kSendReceive}) {
    const Library functions = library(22907);
    Rings rings(22907);
    for (int channel = 0; channel < kChannels; ++channel) rings.connect(channel, 1, 0, 1);
    SumOfRanks sum(0, 3, 1);
    std::vector<char> to(100);
    SendReceiveFields receive{.send = {}, .receive = {to.data(), 100, 1, 1, 40, false}};
    receive.send.peer = 1;
    LaunchArguments arguments(rings.rank(0).address(), 0b1111);
    if (function == kSendReceive) {
      arguments.add_layer(Kind::kSendReceive, function, {receive.bytes()});
    } else {
      arguments.add_layer(Kind::kCollective, function, {sum.work(functions.layout, 0)});
    }
    const std::vector<char> bytes = arguments.bytes();
    Kernel kernel(functions, bytes.data(), bytes.size(), arguments.blocks());
    for (int turn = 0; turn < 10; ++turn) EXPECT_FALSE(kernel.advance());  // the others are absent
    rings.rank(0).abort();
    EXPECT_TRUE(kernel.advance());
  }
}

TEST(Kernel, MayBeDestroyedWhileItWaits) {
  const Library functions = library(22907);
  Rings rings(22907);
  SumOfRanks sum(0, 3, 1);
  LaunchArguments arguments(rings.rank(0).address(), 0b1111);
  arguments.add_layer(Kind::kCollective, kSumOfInts, {sum.work(functions.layout, 0)});
  const std::vector<char> bytes = arguments.bytes();
  Kernel kernel(functions, bytes.data(), bytes.size(), arguments.blocks());
  EXPECT_FALSE(kernel.advance());
}

TEST(Kernel, EndsTheProgramWhereItHasNoSuchAlgorithm) {
  const auto runs = [] {
    const Library functions = library(22907);
    Rings rings(22907);
    SumOfRanks sum(0, 0, 1);
    auto arguments = rings.arguments(1);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      arguments[rank].add_layer(Kind::kCollective, kOnNvls, {sum.work(functions.layout, rank)});
    }
    Rings::run(functions, arguments, 1);
    std::_Exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // other tests have left threads
  EXPECT_EXIT(runs(), testing::ExitedWithCode(1), "NCCL asks for .*: set NCCL_ALGO");
  GTEST_FLAG_SET(death_test_style, "fast");
}

}  // namespace
}  // namespace pacecar::kernel_test
