// iflush of GPU memory that a NIC writes directly returns a request, which test completes. The
// plugin is linked in, over a scripted Context.
#include <gtest/gtest.h>

#include "net_plugin/abi/tables.h"
#include "net_plugin/comm.h"
#include "tests/support/fake_nccl_host.h"

extern "C" const pacecar::nccl::NetV11 ncclNetPlugin_v11;

namespace pacecar::test::flush_test {
namespace {

using nccl::NcclResult;

constexpr const nccl::NetV11& kNet = ncclNetPlugin_v11;

class FlushingContext final : public Context {
 public:
  std::span<const NicInfo> nics() const override { return {}; }
  Result<size_t> bond(std::span<const size_t>) override { return 0; }
  std::string banner() const override { return ""; }
  Result<std::unique_ptr<Listener>> listen(size_t) override { return nullptr; }
  Result<std::unique_ptr<Connecting>> connect(size_t, const Handle&,
                                              const ConnectOptions&) override {
    return nullptr;
  }
  void expect(uint32_t) override {}
  Result<const Memory*> register_memory(size_t nic, const MemoryRange&) override {
    nics_used.push_back(nic);
    return nullptr;
  }
  Result<void> deregister_memory(size_t nic, const Memory*) override {
    nics_used.push_back(nic);
    return {};
  }
  Result<std::optional<FlushId>> start_flush(size_t nic, const Memory*, const void* data) override {
    nics_used.push_back(nic);
    flushed_data = data;
    return needed ? std::optional(++started) : std::nullopt;
  }
  Result<bool> flushed(size_t, FlushId flush) override {
    if (failing) return fail(ErrorCode::kSystem, "the device is gone");
    return flush <= through;
  }
  void rest(size_t) override {}
  Statistics statistics(size_t) const override { return {}; }

  bool needed = true;
  bool failing = false;
  FlushId started = 0;
  FlushId through = 0;
  const void* flushed_data = nullptr;
  std::vector<size_t> nics_used;
};

class NoConnection final : public ReceiveConnection {
 public:
  Result<Request*> irecv(std::span<const ReceiveBuffer>) override { return nullptr; }
  Result<TestResult> test(Request*) override { return TestResult(); }
  std::string peer() const override { return "nobody"; }
  size_t nic() const override { return 3; }
};

class FlushTest : public testing::Test {
 protected:
  // Flushes two buffers, the second with `size` bytes.
  void* flush(int size = 64) {
    std::array<void*, 2> data{bytes_.data(), bytes_.data() + 64};
    std::array<int, 2> sizes{64, size};
    std::array<void*, 2> memories{&bytes_, &bytes_};  // ignored by the context
    void* request = this;
    EXPECT_EQ(kNet.iflush(end(), 2, data.data(), sizes.data(), memories.data(), &request),
              NcclResult::kSuccess);
    return request;
  }
  void* end() { return &comm_; }
  int done(void* request, NcclResult expected = NcclResult::kSuccess) {
    int value = 7;
    EXPECT_EQ(kNet.test(request, &value, nullptr), expected);
    return value;
  }

  const std::shared_ptr<FlushingContext> context_ = std::make_shared<FlushingContext>();
  plugin::Comm comm_{context_, std::make_unique<NoConnection>()};
  std::array<uint8_t, 128> bytes_{};
};

TEST_F(FlushTest, AFlushCompletesWhenTheNicReportsIt) {
  void* const first = flush();
  void* const second = flush();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(done(first), 0);
  context_->through = 1;
  EXPECT_EQ(done(first), 1);
  EXPECT_EQ(done(second), 0);
  context_->through = 2;
  EXPECT_EQ(done(second), 1);
}

// The NIC of the connection may be another than NCCL has asked for.
TEST_F(FlushTest, MemoryIsRegisteredAndFlushedOnTheConnectionsNic) {
  void* memory = this;
  EXPECT_EQ(kNet.regMr(end(), bytes_.data(), bytes_.size(), nccl::kPointerHost, &memory),
            NcclResult::kSuccess);
  flush();
  EXPECT_EQ(kNet.deregMr(end(), memory), NcclResult::kSuccess);
  EXPECT_EQ(context_->nics_used, (std::vector<size_t>{3, 3, 3}));
}

TEST_F(FlushTest, NoRequestIsReturnedWhereNoFlushIsNeeded) {
  context_->needed = false;
  EXPECT_EQ(flush(), nullptr);
}

TEST_F(FlushTest, AFlushReadsTheLastBufferWithBytes) {
  flush();
  EXPECT_EQ(context_->flushed_data, &bytes_[64]);
  flush(0);
  EXPECT_EQ(context_->flushed_data, &bytes_[0]);
}

TEST_F(FlushTest, FlushesMayUseAllRequestsAgainAndAgain) {
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> requests;
    for (int i = 0; i < kMaxRequests; ++i) requests.push_back(flush());
    context_->through = context_->started;
    for (void* request : requests) EXPECT_EQ(done(request), 1);
  }
}

TEST_F(FlushTest, AFlushFailsWhenTheNicFails) {
  void* const request = flush();
  context_->failing = true;
  EXPECT_EQ(done(request, NcclResult::kSystemError), 0);
}

}  // namespace
}  // namespace pacecar::test::flush_test
