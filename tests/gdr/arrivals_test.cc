// Arrivals where the NIC writes directly to GPU memory: signals wait for the flush.
#include "transport/rma/arrivals.h"

#include <gtest/gtest.h>

#include "gdr/gpu_system.h"
#include "tests/gdr/rma_ranks.h"
#include "transport/api/memory.h"
#include "transport/api/plugin_calls.h"

namespace pacecar::rma::arrivals_test {
namespace {

// A NIC that reaches GPU memory; flush_done ends its flushes.
class DirectContext final : public Context, public CopyingContext {
 public:
  explicit DirectContext(std::shared_ptr<GpuSystem> gpus) : gpus_(std::move(gpus)) {}

  std::span<const NicInfo> nics() const override { return {}; }
  Result<size_t> bond(std::span<const size_t>) override { return none(); }
  std::string banner() const override { return {}; }
  Result<std::unique_ptr<Listener>> listen(size_t) override { return none(); }
  Result<std::unique_ptr<Connecting>> connect(size_t, const Handle&,
                                              const ConnectOptions&) override {
    return none();
  }
  void expect(uint32_t) override {}
  Result<const Memory*> register_memory(size_t, const MemoryRange& range) override {
    ++registered;
    MemoryRegion region;
    region.address = static_cast<uint8_t*>(range.address);
    region.length = range.length;
    const bool gpu = range.kind == MemoryKind::kCuda;
    return new Memory({region}, 0, gpu ? std::optional(0) : std::nullopt);
  }
  Result<void> deregister_memory(size_t, const Memory* memory) override {
    --registered;
    delete memory;
    return {};
  }
  Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& range) override {
    return std::make_shared<StagedRange>(gpus_->engine(0).value(), range.address, range.length);
  }
  Result<std::optional<FlushId>> start_flush(size_t, const Memory*, const void*) override {
    if (fails) return fail(ErrorCode::kSystem, "no flush");
    ++flushes;
    return FlushId{7};
  }
  Result<bool> flushed(size_t, FlushId) override { return flush_done; }
  void rest(size_t) override {}
  Statistics statistics(size_t) const override { return {}; }

  int registered = 0;
  int flushes = 0;
  bool flush_done = false;
  bool fails = false;

 private:
  static tl::unexpected<Error> none() { return fail(ErrorCode::kUnavailable, "not here"); }

  const std::shared_ptr<GpuSystem> gpus_;
};

class ArrivalsOfDirectMemory : public testing::Test {
 protected:
  ArrivalsOfDirectMemory() {
    on_gpu_ = windows_.register_own(gpu_memory_.range()).value().id;
    on_host_ = windows_.register_own(host_memory_.range()).value().id;
    arrivals_.use(
        PinnedMemory::allocate(gpus_->engine(0).value(), Arrivals::kMost * sizeof(uint64_t))
            .value());
    gpu_memory_.write(std::vector<uint8_t>(4096));
  }

  // Returns how many operations have ended.
  size_t advance() { return arrivals_.advance().value().size(); }
  void finish() {
    test::step_until("the round", [this] {
      advance();
      return arrivals_.idle();
    });
  }

  const test::FakeGpu fake_{FAKE_CUDA};
  const std::shared_ptr<GpuSystem> gpus_ = GpuSystem::open(FAKE_CUDA).value();
  const std::shared_ptr<DirectContext> context_ = std::make_shared<DirectContext>(gpus_);
  const test::RankMemory gpu_memory_{fake_, 4096, true};
  const test::RankMemory host_memory_{fake_, 4096, false};
  Windows windows_{context_, 0, 1};
  Arrivals arrivals_{context_, 0, windows_};
  WindowId on_gpu_ = 0;
  WindowId on_host_ = 0;
};

TEST_F(ArrivalsOfDirectMemory, SignalsAreAddedOnlyAfterTheFlush) {
  Operation flush{.left = 1};
  arrivals_.add(on_gpu_, 8, 5);
  arrivals_.add(on_host_, 16, 6);
  arrivals_.add({.kind = ArrivalKind::kFlush, .operation = &flush});
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(advance(), 0U);
  EXPECT_EQ(context_->flushes, 1);
  EXPECT_EQ(gpu_memory_.word(8), 0U);
  EXPECT_EQ(host_memory_.word(16), 0U);
  context_->flush_done = true;
  size_t ended = 0;
  test::step_until("the round", [&] {
    ended += advance();
    return arrivals_.idle();
  });
  EXPECT_EQ(ended, 1U);
  EXPECT_EQ(gpu_memory_.word(8), 5U);
  EXPECT_EQ(host_memory_.word(16), 6U);
}

TEST_F(ArrivalsOfDirectMemory, SignalsDuringARoundAreAddedInTheNextRound) {
  arrivals_.add(on_gpu_, 8, 1);
  advance();
  arrivals_.add(on_gpu_, 8, 2);
  arrivals_.add(on_gpu_, 8, 3);
  arrivals_.add(on_host_, 8, 4);
  context_->flush_done = true;
  finish();
  EXPECT_EQ(context_->flushes, 2);
  EXPECT_EQ(gpu_memory_.word(8), 6U);
  EXPECT_EQ(host_memory_.word(8), 4U);
}

TEST_F(ArrivalsOfDirectMemory, SignalsOfADeregisteredWindowAreDropped) {
  for (const WindowId window : {on_gpu_, on_host_}) arrivals_.add(window, 0, 1);
  advance();
  windows_.deregister(*windows_.release_own(on_gpu_));
  windows_.deregister(*windows_.release_own(on_host_));
  context_->flush_done = true;
  finish();
  EXPECT_EQ(gpu_memory_.word(0), 0U);
  EXPECT_EQ(host_memory_.word(0), 0U);
  EXPECT_EQ(context_->registered, 0);
}

TEST_F(ArrivalsOfDirectMemory, FailedFlushFailsAllArrivals) {
  Operation flush{.left = 1};
  context_->fails = true;
  arrivals_.add(on_host_, 0, 1);
  arrivals_.add({.kind = ArrivalKind::kFlush, .operation = &flush});
  const auto advanced = arrivals_.advance();
  ASSERT_FALSE(advanced);
  arrivals_.fail(advanced.error());
  ASSERT_TRUE(flush.error);
  EXPECT_EQ(flush.error->message, "no flush");
  EXPECT_TRUE(arrivals_.idle());
  EXPECT_EQ(host_memory_.word(0), 0U);
}

TEST_F(ArrivalsOfDirectMemory, HostSignalsAreAddedAtOnceWithoutGpuWindows) {
  windows_.deregister(*windows_.release_own(on_gpu_));
  arrivals_.add(on_host_, 24, 9);
  EXPECT_EQ(host_memory_.word(24), 9U);
  EXPECT_TRUE(arrivals_.idle());
}

TEST_F(ArrivalsOfDirectMemory, EachWordOfAFullRoundGetsItsOwnSignal) {
  const test::RankMemory wide(fake_, Arrivals::kMost * 8, true);
  wide.write(std::vector<uint8_t>(Arrivals::kMost * 8));
  const WindowId id = windows_.register_own(wide.range()).value().id;
  uint64_t added = 0;
  for (; !arrivals_.full(); ++added) arrivals_.add(id, 8 * added, added + 1);
  EXPECT_EQ(added, Arrivals::kMost);
  context_->flush_done = true;
  finish();
  for (uint64_t i = 0; i < added; ++i) ASSERT_EQ(wide.word(8 * i), i + 1);
  windows_.deregister(*windows_.release_own(id));
}

}  // namespace
}  // namespace pacecar::rma::arrivals_test
