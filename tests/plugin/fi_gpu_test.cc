// GPU memory through the libfabric provider, with a fake driver. A process that touches this memory
// without the driver is killed, and copies complete late.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/fake_gpu.h"
#include "tests/support/fi_world.h"

namespace pacecar::test::fi_gpu_test {
namespace {

// Two processes, each with a GPU and a buffer in it that is registered under the key `kKey`.
constexpr uint64_t kKey = 77;
constexpr size_t kBytes = 3 << 19;

struct GpuWorld {
  GpuWorld(World& its_world, const FakeGpu& its_gpu)
      : world(its_world), gpu(its_gpu), buffer(gpu, kBytes) {
    region = world.end.share_of_gpu(buffer.data(), kBytes, kKey);
    desc = fi_mr_desc(region);
  }
  void write(size_t offset, const std::vector<uint8_t>& bytes) { buffer.write(bytes, offset); }
  std::vector<uint8_t> read(size_t offset, size_t bytes) const {
    const std::vector<uint8_t> all = buffer.read();
    return {all.begin() + static_cast<ptrdiff_t>(offset),
            all.begin() + static_cast<ptrdiff_t>(offset + bytes)};
  }
  fid_ep* endpoint() const { return world.end.endpoint; }

  World& world;
  const FakeGpu& gpu;
  GpuBuffer buffer;
  fid_mr* region = nullptr;
  void* desc = nullptr;
};

void with_gpus(const std::function<void(GpuWorld&)>& body) {
  expect_processes_pass(2, [&](Rank& rank) {
    const FakeGpu gpu(FAKE_CUDA);
    World world(rank, {.gpus = true});
    GpuWorld both(world, gpu);
    body(both);
    world.meet();
  });
}

constexpr size_t kSizesOfGpus[] = {
    0, 1, 4096, 65536, 65537, fabric::kEagerBytes, fabric::kEagerBytes + 1, 600001, kBytes};

TEST(FiGpu, MessagesOfAllSizesArrive) {
  with_gpus([](GpuWorld& both) {
    World& world = both.world;
    for (const size_t size : kSizesOfGpus) {
      int context = 0;
      if (world.first()) {
        both.write(0, pattern(size, size));
        world.end.until_taken([&] {
          return fi_tsend(both.endpoint(), both.buffer.data(), size, both.desc, world.other(), size,
                          &context);
        });
      } else {
        both.write(0, std::vector<uint8_t>(kBytes, 0xee));
        world.end.until_taken([&] {
          return fi_trecv(both.endpoint(), both.buffer.data(), size, both.desc, world.other(), size,
                          0, &context);
        });
      }
      const FiOutcome outcome = world.end.outcome_of(&context);
      EXPECT_EQ(outcome.error, 0);
      if (!world.first()) {
        EXPECT_EQ(outcome.length, size);
        EXPECT_TRUE(both.read(0, size) == pattern(size, size)) << size;
        const auto behind = both.read(size, kBytes - size);
        EXPECT_EQ(std::ranges::count(behind, 0xee), static_cast<ptrdiff_t>(behind.size())) << size;
      }
      world.meet();
    }
  });
}

TEST(FiGpu, UnexpectedTruncatedAndMultiReceiveMessagesArrive) {
  with_gpus([](GpuWorld& both) {
    World& world = both.world;
    const size_t sizes[] = {1000, 600000, 800000};
    if (world.first()) {
      for (const size_t size : sizes) {
        const auto bytes = pattern(size, size);  // host memory, into a GPU
        int context = 0;
        world.end.until_taken([&] {
          return fi_send(both.endpoint(), bytes.data(), size, nullptr, world.other(), &context);
        });
        if (size == sizes[0]) world.meet();
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      }
      return;
    }
    world.meet();
    int cut = 0;
    world.end.until_taken([&] {
      return fi_recv(both.endpoint(), both.buffer.data(), 10, both.desc, FI_ADDR_UNSPEC, &cut);
    });
    const FiOutcome outcome = world.end.outcome_of(&cut);
    EXPECT_EQ(outcome.error, FI_ETRUNC);
    auto begin = pattern(1000, 1000);
    begin.resize(10);
    EXPECT_TRUE(both.read(0, 10) == begin);
    const iovec iov{both.buffer.data() + 4096, 1400000};
    fi_msg message{};
    message.msg_iov = &iov;
    message.desc = &both.desc;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.context = &message;
    world.end.until_taken([&] { return fi_recvmsg(both.endpoint(), &message, FI_MULTI_RECV); });
    // The two copies into the GPU run side by side: the shorter message may complete second.
    const FiOutcome arrived[] = {world.end.outcome_of(&message), world.end.outcome_of(&message)};
    EXPECT_EQ(std::minmax(arrived[0].length, arrived[1].length), std::minmax(sizes[1], sizes[2]));
    EXPECT_EQ(arrived[0].flags & FI_MULTI_RECV, 0u);
    EXPECT_NE(arrived[1].flags & FI_MULTI_RECV, 0u);
    EXPECT_TRUE(both.read(4096, sizes[1]) == pattern(sizes[1], sizes[1]));
    EXPECT_TRUE(both.read(4096 + sizes[1], sizes[2]) == pattern(sizes[2], sizes[2]));
  });
}

TEST(FiGpu, WriteReadAndAtomicsReachGpuMemory) {
  with_gpus([](GpuWorld& both) {
    World& world = both.world;
    const size_t half = kBytes / 2;
    world.meet();
    if (world.first()) {
      for (const size_t size : {size_t{1}, size_t{5000}, size_t{65537}, size_t{200000}}) {
        int context = 0;
        both.write(0, pattern(size, size));
        world.end.until_taken([&] {
          return fi_write(both.endpoint(), both.buffer.data(), size, both.desc, world.other(), 16,
                          kKey, &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
        world.end.until_taken([&] {
          return fi_read(both.endpoint(), both.buffer.data() + half, size, both.desc, world.other(),
                         16, kKey, &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
        EXPECT_TRUE(both.read(half, size) == pattern(size, size)) << size;
      }
      // Adds 5 to a word that is 7; both words are in GPU memory.
      std::vector<uint8_t> word(8, 0);
      word[0] = 7;
      int context = 0;
      both.write(0, word);
      world.end.until_taken([&] {
        return fi_write(both.endpoint(), both.buffer.data(), 8, both.desc, world.other(), 8, kKey,
                        &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      word[0] = 5;
      both.write(0, word);
      world.end.until_taken([&] {
        return fi_fetch_atomic(both.endpoint(), both.buffer.data(), 1, both.desc,
                               both.buffer.data() + 64, both.desc, world.other(), 8, kKey,
                               FI_UINT64, FI_SUM, &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      EXPECT_EQ(both.read(64, 1)[0], 7);
    }
    world.meet();
    if (!world.first()) {
      EXPECT_EQ(both.read(8, 1)[0], 12);
      EXPECT_TRUE(both.read(16, 200000) == pattern(200000, 200000));
    }
  });
}

TEST(FiGpu, AFailedCopyFailsItsOperation) {
  with_gpus([](GpuWorld& both) {
    World& world = both.world;
    world.meet();
    if (world.first()) {
      both.gpu.with([](FakeCuda& fake) { fake.copies_fail = true; });
      int context = 0;
      EXPECT_EQ(
          fi_tsend(both.endpoint(), both.buffer.data(), 100, both.desc, world.other(), 1, &context),
          -FI_EIO);
      EXPECT_EQ(fi_tsend(both.endpoint(), both.buffer.data(), kBytes, both.desc, world.other(), 1,
                         &context),
                -FI_EIO);
    }
    world.meet();
    // Messages in host memory still arrive.
    if (world.first()) {
      send_tagged(world, pattern(600000, 3), 2);
    } else {
      expect_tagged(world, pattern(600000, 3), 2);
    }
  });
}

TEST(FiGpu, AWriteToAClosedRegionIsRefused) {
  with_gpus([](GpuWorld& both) {
    World& world = both.world;
    int context = 0;
    if (world.first()) {
      world.meet();
      world.end.until_taken([&] {
        return fi_write(both.endpoint(), both.buffer.data(), kBytes, both.desc, world.other(), 0,
                        kKey + 1, &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, FI_ENOKEY);
    } else {
      const GpuBuffer other(both.gpu, 4096);
      const iovec iov{other.data(), 4096};
      fi_mr_attr attr{};
      attr.mr_iov = &iov;
      attr.iov_count = 1;
      attr.access = FI_REMOTE_WRITE;
      attr.requested_key = kKey + 1;
      attr.iface = FI_HMEM_CUDA;
      fid_mr* region = nullptr;
      must(fi_mr_regattr(world.end.domain, &attr, 0, &region), "fi_mr_regattr");
      fi_close(&region->fid);
      world.meet();
    }
  });
}

TEST(FiGpu, HmemIsOfferedOnlyWithMrHmem) {
  expect_processes_pass(1, [](Rank&) {
    const FakeGpu gpu(FAKE_CUDA);
    const auto found = [](uint64_t caps, int mr_mode) {
      fi_info* const hints = fi_allocinfo();
      hints->fabric_attr->prov_name = strdup("pacecar");
      hints->caps = FI_MSG | caps;
      hints->domain_attr->mr_mode = mr_mode;
      fi_info* info = nullptr;
      const int result = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
      const bool hmem = result == 0 && (info->caps & FI_HMEM) != 0 &&
                        (info->domain_attr->mr_mode & FI_MR_HMEM) != 0;
      fi_freeinfo(hints);
      if (info != nullptr) fi_freeinfo(info);
      return std::pair(result, hmem);
    };
    EXPECT_EQ(found(FI_HMEM, FI_MR_HMEM), std::pair(0, true));
    EXPECT_EQ(found(0, FI_MR_HMEM), std::pair(0, false));
    EXPECT_EQ(found(FI_HMEM, 0), std::pair(-FI_ENODATA, false));
  });
}

TEST(FiGpu, HostMemoryIsRefusedAsGpuMemory) {
  with_gpus([](GpuWorld& both) {
    std::vector<uint8_t> host(4096);
    const iovec iov{host.data(), host.size()};
    fi_mr_attr attr{};
    attr.mr_iov = &iov;
    attr.iov_count = 1;
    attr.access = FI_SEND;
    attr.requested_key = kKey + 2;
    attr.iface = FI_HMEM_CUDA;
    fid_mr* region = nullptr;
    EXPECT_EQ(fi_mr_regattr(both.world.end.domain, &attr, 0, &region), -FI_EINVAL);
    attr.iface = FI_HMEM_ZE;
    EXPECT_EQ(fi_mr_regattr(both.world.end.domain, &attr, 0, &region), -FI_ENOSYS);
  });
}

}  // namespace
}  // namespace pacecar::test::fi_gpu_test
