// GPU memory through the plugin's tables, with a fake driver library in place of libcuda.
#include "tests/plugin/plugin_test.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::test::gpu_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

bool real_driver() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr; }

std::vector<uint8_t> filled(size_t bytes, uint64_t seed) {
  std::vector<uint8_t> all(bytes);
  fill_pattern(all, seed);
  return all;
}

// GPU memory, registered with one end of a connection.
class Registered {
 public:
  Registered(const FakeGpu& gpu, const FakeNcclHost& host, void* comm, size_t bytes)
      : buffer_(gpu, bytes), net_(host.net()), comm_(comm) {
    if (net_.regMr(comm, buffer_.data(), bytes, nccl::kPointerCuda, &memory_) !=
        NcclResult::kSuccess) {
      throw HostError("regMr of GPU memory failed");
    }
  }
  ~Registered() { net_.deregMr(comm_, memory_); }

  void* memory() const { return memory_; }
  const GpuBuffer& gpu() const { return buffer_; }
  Part part(size_t offset, size_t bytes, int tag = 0) const {
    return {buffer_.bytes().subspan(offset, bytes), tag, memory_};
  }

 private:
  const GpuBuffer buffer_;
  const nccl::AnyNet& net_;
  void* const comm_;
  void* memory_ = nullptr;
};

// Finishes all requests; returns the first size of each.
std::vector<int> finish(const FakeNcclHost& host, std::vector<void*> requests) {
  std::vector<int> first_sizes;
  for (const auto& sizes : host.finish(std::move(requests))) first_sizes.push_back(sizes.front());
  return first_sizes;
}

// A process with the fake driver, a plugin that stages, and a connection to itself.
void with_gpu(const std::function<void(const FakeGpu&, const FakeNcclHost&, const Ends&)>& body) {
  expect_processes_pass(1, [&](Rank&) {
    const FakeGpu gpu(FAKE_CUDA);
    setenv("PACECAR_GPU", "staged", 1);
    const auto host = start_host();
    const Ends pair = host->connect_self();
    body(gpu, *host, pair);
    host->close(pair);
  });
}

TEST(Gpu, PropertiesReportStagedGpuMemory) {
  with_gpu([](const FakeGpu&, const FakeNcclHost& host, const Ends&) {
    nccl::NetPropertiesV12 properties;
    ASSERT_EQ(host.net().getProperties(0, &properties), NcclResult::kSuccess);
    EXPECT_EQ(properties.pointer_support, nccl::kPointerHost | nccl::kPointerCuda);
    EXPECT_EQ(properties.force_flush, 0);
    if (host.net().version >= 9) {
      EXPECT_EQ(properties.max_p2p_bytes, size_t{1} << 20);
      EXPECT_EQ(properties.max_collective_bytes, size_t{1} << 20);
    }
    const std::string names = nic_names();
    const std::string first = names.substr(0, names.find(','));
    EXPECT_TRUE(was_logged(LogSeverity::kInfo, first + ": GPU memory staged through pinned"));
  });
}

TEST(Gpu, EverySizeArrivesWhole) {
  with_gpu([](const FakeGpu& gpu, const FakeNcclHost& host, const Ends& pair) {
    constexpr size_t kMax = (1U << 20) + 3;
    const Registered source(gpu, host, pair.send, kMax);
    const Registered target(gpu, host, pair.receive, kMax);
    uint64_t seed = 0;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{4097}, size_t{65'536}, kMax}) {
      source.gpu().write(filled(size, ++seed));
      void* const receiving = host.receive(pair.receive, target.part(0, kMax));
      void* const sending = host.send(pair.send, source.part(0, size));
      EXPECT_EQ(finish(host, {sending, receiving}), std::vector(2, static_cast<int>(size)));
      EXPECT_EQ(gpu.read(target.gpu().data(), size), filled(size, seed)) << size << " bytes";
    }
  });
}

TEST(Gpu, SlicesInFlightTogetherAreMatchedByTag) {
  with_gpu([](const FakeGpu& gpu, const FakeNcclHost& host, const Ends& pair) {
    constexpr size_t kSlice = 512U << 10;
    constexpr size_t kSlices = 8;
    const Registered source(gpu, host, pair.send, kSlices * kSlice);
    const Registered target(gpu, host, pair.receive, kSlices * kSlice);
    for (uint64_t round = 0; round < 10; ++round) {
      const auto bytes = filled(kSlices * kSlice, round);
      source.gpu().write(bytes);
      std::vector<void*> requests;
      for (size_t i = 0; i < kSlices; i += 2) {
        const std::array<Part, 2> posted{target.part(i * kSlice, kSlice, 1),
                                         target.part((i + 1) * kSlice, kSlice, 2)};
        requests.push_back(host.receive(pair.receive, posted));
      }
      for (size_t i = 0; i < kSlices; i += 2) {
        requests.push_back(host.send(pair.send, source.part((i + 1) * kSlice, kSlice, 2)));
        requests.push_back(host.send(pair.send, source.part(i * kSlice, kSlice, 1)));
      }
      finish(host, requests);
      EXPECT_EQ(target.gpu().read(), bytes) << "round " << round;
    }
  });
}

TEST(Gpu, TwoProcessesExchangeGpuMemory) {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kBytes = 4U << 20;
    constexpr size_t kSlice = 256U << 10;
    const FakeGpu gpu(FAKE_CUDA);
    setenv("PACECAR_GPU", "staged", 1);
    const auto host = start_host();
    const Listening listening = host->listen();
    rank.give(rank.next(), listening.handle);
    HandleBytes handle = rank.take(rank.next());
    void* to = nullptr;
    void* from = nullptr;
    poll_until("connecting", [&] {
      if (to == nullptr) to = host->try_connect(handle);
      if (from == nullptr) from = host->try_accept(listening.comm);
      return to != nullptr && from != nullptr;
    });
    host->net().closeListen(listening.comm);
    {
      const Registered source(gpu, *host, to, kBytes);
      const Registered target(gpu, *host, from, kBytes);
      source.gpu().write(filled(kBytes, static_cast<uint64_t>(rank.rank())));
      for (size_t offset = 0; offset < kBytes; offset += 4 * kSlice) {
        std::vector<void*> requests;
        for (size_t i = 0; i < 4; ++i) {
          requests.push_back(host->receive(from, target.part(offset + i * kSlice, kSlice)));
          requests.push_back(host->send(to, source.part(offset + i * kSlice, kSlice)));
        }
        finish(*host, requests);
      }
      EXPECT_EQ(target.gpu().read(), filled(kBytes, static_cast<uint64_t>(rank.next())));
      rank.barrier();
    }
    host->close({to, from});
  });
}

TEST(Gpu, AStagedReceiveNeedsNoFlush) {
  with_gpu([](const FakeGpu& gpu, const FakeNcclHost& host, const Ends& pair) {
    const Registered target(gpu, host, pair.receive, 4096);
    void* data = target.gpu().data();
    int size = 4096;
    void* memory = target.memory();
    void* request = &size;
    EXPECT_EQ(host.net().iflush(pair.receive, 1, &data, &size, &memory, &request),
              NcclResult::kSuccess);
    EXPECT_EQ(request, nullptr);
    EXPECT_NE(host.net().iflush(pair.receive, 9, &data, &size, &memory, &request),
              NcclResult::kSuccess);
  });
}

TEST(Gpu, ADmaBufIsRegistered) {
  with_gpu([](const FakeGpu& gpu, const FakeNcclHost& host, const Ends& pair) {
    const GpuBuffer buffer(gpu, 4096);
    void* memory = nullptr;
    ASSERT_EQ(
        host.net().regMrDmaBuf(pair.send, buffer.data(), 4096, nccl::kPointerCuda, 0, 0, &memory),
        NcclResult::kSuccess);
    EXPECT_EQ(host.net().deregMr(pair.send, memory), NcclResult::kSuccess);
  });
}

TEST(Gpu, HostMemoryIsRefusedAsGpuMemory) {
  with_gpu([](const FakeGpu&, const FakeNcclHost& host, const Ends& pair) {
    std::array<uint8_t, 64> data{};
    void* memory = &data;
    EXPECT_EQ(host.net().regMr(pair.send, data.data(), data.size(), nccl::kPointerCuda, &memory),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(host.net().regMr(pair.send, data.data(), data.size(), 3, &memory),
              NcclResult::kInvalidArgument);
  });
}

TEST(Gpu, AFailedCopyIsASystemError) {
  with_gpu([](const FakeGpu& gpu, const FakeNcclHost& host, const Ends& pair) {
    const Registered source(gpu, host, pair.send, 4096);
    gpu.with([](FakeCuda& cuda) { cuda.copies_fail = true; });
    EXPECT_EQ(host.result_of(host.send(pair.send, source.part(0, 4096))), NcclResult::kSystemError);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "a copy between GPU and host failed"));
  });
}

// Staging is impossible: the job runs on host memory, and one log line says why.
void expect_host_only(const std::string& reason) {
  const auto host = start_host();
  nccl::NetPropertiesV12 properties;
  ASSERT_EQ(host->net().getProperties(0, &properties), NcclResult::kSuccess);
  EXPECT_EQ(properties.pointer_support, nccl::kPointerHost);
  EXPECT_EQ(properties.max_p2p_bytes,
            host->net().version >= 9 ? nccl::kMaxTransferBytes : size_t{1} << 30);
  EXPECT_TRUE(was_logged(LogSeverity::kWarn,
                         "PACECAR_GPU=staged cannot be had; GPU memory through "
                         "host buffers: " +
                             reason));
  const Ends pair = host->connect_self();
  host->close(pair);
}

TEST(Gpu, TheJobRunsOnHostMemoryWithoutADriver) {
  if (real_driver()) GTEST_SKIP() << "this host has NVIDIA's driver";
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_GPU", "staged", 1);
    expect_host_only("NVIDIA's driver library is not there");
  });
}

TEST(Gpu, TheJobRunsOnHostMemoryWithoutAGpu) {
  expect_processes_pass(1, [](Rank&) {
    const FakeGpu gpu(FAKE_CUDA);
    gpu.with([](FakeCuda& cuda) { cuda.devices = 0; });
    setenv("PACECAR_GPU", "staged", 1);
    expect_host_only("the driver finds no GPU");
  });
}

TEST(Gpu, ASoftwareNicLogsThatItCannotBeDirect) {
  expect_processes_pass(1, [](Rank&) {
    const FakeGpu gpu(FAKE_CUDA);
    setenv("PACECAR_GPU", "direct", 1);
    const auto host = start_host();
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "PACECAR_GPU=direct cannot be had"));
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "a software NIC cannot reach the GPU"));
  });
}

TEST(Gpu, NcclCopiesByDefaultForASoftwareNic) {
  expect_processes_pass(1, [](Rank&) {
    const FakeGpu gpu(FAKE_CUDA);
    const auto host = start_host();
    nccl::NetPropertiesV12 properties;
    ASSERT_EQ(host->net().getProperties(0, &properties), NcclResult::kSuccess);
    EXPECT_EQ(properties.pointer_support, nccl::kPointerHost);
    EXPECT_TRUE(was_logged(LogSeverity::kInfo, nic_names() + ": GPU memory through host buffers: a "
                                                             "software NIC cannot reach the GPU"));
    EXPECT_FALSE(was_logged(LogSeverity::kWarn, "GPU"));
  });
}

}  // namespace
}  // namespace pacecar::test::gpu_test
