// The decorator of a Context for GPU memory: exports, fallbacks, flushes. The NICs are scripted.
#include "transport/api/gpu/gpu_context.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_gpu.h"
#include "transport/api/memory.h"

namespace pacecar::gpu_context_test {
namespace {

using test::FakeGpu;
using test::GpuBuffer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The registrations that the scripted NICs recorded, and the kinds that they refuse.
struct Script {
  std::vector<MemoryRange> registered;
  std::vector<size_t> nics;  // of each registration
  size_t joins_over = 0;     // the NIC that connections use
  bool refuses_dmabuf = false;
  bool refuses_address = false;
  bool never_reads = false;
  int flushes = 0;
};

class NoSends final : public SendConnection {
 public:
  explicit NoSends(size_t nic) : nic_(nic) {}
  Result<Request*> isend(const void*, size_t, int, const Memory*) override { return nullptr; }
  Result<TestResult> test(Request*) override { return TestResult(); }
  std::string peer() const override { return "nobody"; }
  size_t nic() const override { return nic_; }
  FlowView flow() const override { return {}; }

 private:
  const size_t nic_;
};
class NoReceives final : public ReceiveConnection {
 public:
  explicit NoReceives(size_t nic) : nic_(nic) {}
  Result<Request*> irecv(std::span<const ReceiveBuffer>) override { return nullptr; }
  Result<TestResult> test(Request*) override { return TestResult(); }
  std::string peer() const override { return "nobody"; }
  size_t nic() const override { return nic_; }

 private:
  const size_t nic_;
};
class AtOnce final : public Connecting, public Listener {
 public:
  explicit AtOnce(size_t nic) : nic_(nic) {}
  Result<std::unique_ptr<SendConnection>> poll() override {
    return std::make_unique<NoSends>(nic_);
  }
  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<ReceiveConnection>> accept() override {
    return std::make_unique<NoReceives>(nic_);
  }

 private:
  const size_t nic_;
  const Handle handle_;
};

// Has two NICs with the same NicInfo.
class ScriptedContext final : public Context {
 public:
  ScriptedContext(Script& script, const NicInfo& info) : script_(script), infos_{info, info} {}

  std::span<const NicInfo> nics() const override { return infos_; }
  Result<size_t> bond(std::span<const size_t>) override { return 0; }
  std::string banner() const override { return "scripted"; }
  Result<std::unique_ptr<Listener>> listen(size_t) override {
    return std::make_unique<AtOnce>(script_.joins_over);
  }
  Result<std::unique_ptr<Connecting>> connect(size_t, const Handle&,
                                              const ConnectOptions&) override {
    return std::make_unique<AtOnce>(script_.joins_over);
  }
  void expect(uint32_t) override {}
  Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) override {
    const bool by_file = range.dmabuf_fd >= 0;
    if (by_file && fcntl(range.dmabuf_fd, F_GETFD) == -1) {
      return fail(ErrorCode::kInternal, "the file is closed");
    }
    if (by_file ? script_.refuses_dmabuf : script_.refuses_address) {
      return fail(ErrorCode::kSystem, by_file ? "no dma-buf today" : "bad address");
    }
    script_.registered.push_back(range);
    script_.nics.push_back(nic);
    const auto gpu = range.kind == MemoryKind::kCuda ? std::optional(range.gpu) : std::nullopt;
    return new Memory(std::vector<MemoryRegion>(1), nic, gpu);
  }
  Result<void> deregister_memory(size_t, const Memory* memory) override {
    delete memory;
    return {};
  }
  Result<std::optional<FlushId>> start_flush(size_t, const Memory*, const void*) override {
    ++script_.flushes;
    if (script_.never_reads) return std::nullopt;
    return script_.flushes;
  }
  Result<bool> flushed(size_t, FlushId flush) override { return flush == 1; }
  void rest(size_t) override {}
  Statistics statistics(size_t) const override { return {}; }

 private:
  Script& script_;
  const std::vector<NicInfo> infos_;
};

class GpuContextTest : public testing::Test {
 protected:
  void open(const NicReach& reach, GpuSetting setting = GpuSetting::kAuto) {
    GpuWays ways(setting, log());
    info_ = {.name = "mlx5_0"};
    ways.choose(reach, info_);
    context_ = ways.apply(std::make_unique<ScriptedContext>(script_, info_));
  }
  LogSink log() {
    return {[](void* lines, LogLevel, std::string_view line) {
              static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
            },
            &lines_};
  }
  MemoryRange range(size_t offset = 0) const {
    return {.address = memory_.data() + offset, .length = 4096, .kind = MemoryKind::kCuda};
  }
  const Memory* add(const MemoryRange& what) { return context_->register_memory(0, what).value(); }
  Result<std::optional<FlushId>> flush() {
    const Memory* const memory = add(range());
    const auto started = context_->start_flush(0, memory, memory_.data());
    deregister(memory);
    return started;
  }
  void deregister(const Memory* memory) { EXPECT_TRUE(context_->deregister_memory(0, memory)); }

  static constexpr NicReach kBuf{.dma_buf = true};
  static constexpr NicReach kBoth{.dma_buf = true, .peer_memory = true};

  const FakeGpu fake_{FAKE_CUDA};
  const GpuBuffer memory_{fake_, 1 << 20};
  Script script_;
  std::vector<std::string> lines_;
  NicInfo info_;
  std::unique_ptr<Context> context_;
};

TEST_F(GpuContextTest, DirectNicReportsItsGpuSupport) {
  open(kBuf);
  EXPECT_TRUE(info_.cuda);
  EXPECT_TRUE(info_.dma_buf);
  EXPECT_EQ(info_.gpu_message_bytes, 0U);
  EXPECT_TRUE(info_.gpu_flush);
  EXPECT_THAT(info_.gpu_memory, HasSubstr("direct by dma-buf"));
  open({.peer_memory = true});
  EXPECT_TRUE(info_.cuda);
  EXPECT_FALSE(info_.dma_buf);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GpuContextTest, MemoryIsExportedUnlessTheCallerHasExportedIt) {
  open(kBuf);
  deregister(add(range(5000)));
  ASSERT_EQ(script_.registered.size(), 1U);
  EXPECT_GE(script_.registered[0].dmabuf_fd, 0);
  EXPECT_EQ(script_.registered[0].dmabuf_offset, 5000U % 4096);
  EXPECT_NE(script_.registered[0].allocation, 0U);
  EXPECT_EQ(fcntl(script_.registered[0].dmabuf_fd, F_GETFD), -1)
      << "the export must be closed after the registration";

  const int file = fcntl(0, F_DUPFD_CLOEXEC, 0);
  MemoryRange exported = range();
  exported.dmabuf_fd = file;
  exported.dmabuf_offset = 77;
  deregister(add(exported));
  EXPECT_EQ(script_.registered[1].dmabuf_fd, file);
  EXPECT_EQ(script_.registered[1].dmabuf_offset, 77U);
  EXPECT_EQ(close(file), 0) << "the caller's file must stay open";
}

TEST_F(GpuContextTest, PeerMemoryIsRegisteredByAddress) {
  open({.peer_memory = true});
  deregister(add(range()));
  EXPECT_EQ(script_.registered.at(0).dmabuf_fd, -1);
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.streams; }), 0)
      << "no stream is needed without copies";
}

TEST_F(GpuContextTest, RefusedDmaBufIsRegisteredByAddress) {
  open(kBoth);
  script_.refuses_dmabuf = true;
  deregister(add(range()));
  EXPECT_EQ(script_.registered.at(0).dmabuf_fd, -1);
  fake_.with([](FakeCuda& cuda) { cuda.refuses_export = true; });
  deregister(add(range()));
  EXPECT_EQ(script_.registered.size(), 2U);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GpuContextTest, UnregistrableMemoryIsStagedAndLoggedOnce) {
  open(kBuf);
  script_.refuses_dmabuf = script_.refuses_address = true;
  for (int i = 0; i < 3; ++i) {
    const Memory* const memory = add(range());
    EXPECT_NE(memory->staged(), nullptr);
    EXPECT_EQ(context_->start_flush(0, memory, memory_.data()).value(), std::nullopt);
    deregister(memory);
  }
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("no dma-buf today")));
  EXPECT_THAT(lines_[0], HasSubstr("staged through pinned host memory instead"));
}

TEST_F(GpuContextTest, ManagedMemoryIsStaged) {
  open(kBoth);
  fake_.with([](FakeCuda& cuda) { cuda.managed = true; });
  const Memory* const memory = add(range());
  EXPECT_NE(memory->staged(), nullptr);
  EXPECT_THAT(script_.registered, IsEmpty());
  EXPECT_THAT(lines_, IsEmpty());
  deregister(memory);
}

// The connection may use another NIC than the one asked for.
TEST_F(GpuContextTest, PinnedMemoryIsRegisteredWithTheConnectionsNic) {
  open({.software = true}, GpuSetting::kStaged);
  script_.joins_over = 1;
  const Memory* const memory = add(range());
  auto sends = context_->connect(0, {}, ConnectOptions()).value()->poll().value();
  EXPECT_TRUE(sends->isend(memory_.data(), 100, 0, memory));
  EXPECT_THAT(script_.nics, ElementsAre(1));
  auto receives = context_->listen(0).value()->accept().value();
  const ReceiveBuffer buffer{memory_.data(), 100, 0, memory};
  EXPECT_TRUE(receives->irecv({&buffer, 1}));
  EXPECT_THAT(script_.nics, ElementsAre(1, 1));
  EXPECT_EQ(sends->nic(), 1U);
  EXPECT_EQ(receives->nic(), 1U);
  sends.reset();
  receives.reset();
  deregister(memory);
}

TEST_F(GpuContextTest, HostMemoryIsPassedOnAndRefusedAsGpuMemory) {
  open(kBuf);
  std::vector<uint8_t> host(100);
  deregister(context_->register_memory(0, host.data(), host.size()).value());
  EXPECT_EQ(script_.registered.at(0).kind, MemoryKind::kHost);
  const auto wrong = context_->register_memory(
      0, {.address = host.data(), .length = host.size(), .kind = MemoryKind::kCuda});
  EXPECT_FALSE(wrong);
}

TEST_F(GpuContextTest, FlushIsAReadWhateverTheGpuReports) {
  for (const int options : {0, 1}) {
    for (const int ordering : {0, 100}) {
      fake_.with([&](FakeCuda& cuda) {
        cuda.flush_options = options;
        cuda.writes_ordering = ordering;
      });
      open(kBuf);
      EXPECT_EQ(info_.gpu_flush, ordering == 0)
          << "gpu_flush says whether the application must call for flushes";
      EXPECT_TRUE(flush().value());
    }
  }
  EXPECT_EQ(script_.flushes, 4);
  EXPECT_EQ(script_.registered.at(0).gpu, 0);
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.flushes; }), 0);
}

TEST_F(GpuContextTest, NicWithoutReadsLeavesTheFlushToTheDriver) {
  script_.never_reads = true;
  open(kBuf);
  EXPECT_EQ(flush().value(), std::nullopt) << "the driver's flush is done when the call returns";
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.flushes; }), 1);

  fake_.with([](FakeCuda& cuda) { cuda.flush_options = 0; });
  open(kBuf);
  const auto refused = flush();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("PACECAR_GPU=host"));

  fake_.with([](FakeCuda& cuda) { cuda.writes_ordering = 100; });
  open(kBuf);
  EXPECT_EQ(flush().value(), std::nullopt);
  EXPECT_EQ(fake_.with([](FakeCuda& cuda) { return cuda.flushes; }), 1);
}

TEST_F(GpuContextTest, UnavailableSettingIsLoggedInOneLine) {
  fake_.with([](FakeCuda& cuda) { cuda.devices = 0; });
  open({.software = true}, GpuSetting::kStaged);
  EXPECT_FALSE(info_.cuda);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("PACECAR_GPU=staged cannot be had; GPU memory through "
                                            "host buffers: the driver finds no GPU")));
  lines_.clear();
  open({.software = true}, GpuSetting::kDirect);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("PACECAR_GPU=direct cannot be had")));
  lines_.clear();
  open({.software = true});
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_THAT(info_.gpu_memory, HasSubstr("a software NIC cannot reach the GPU"));
}

}  // namespace
}  // namespace pacecar::gpu_context_test
