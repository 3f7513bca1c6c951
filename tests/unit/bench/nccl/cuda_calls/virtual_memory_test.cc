// CUDA's virtual memory on the CPU device.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/bench/nccl/cuda_calls/calls.h"

namespace pacecar::cuda_calls_test {
namespace {

constexpr size_t kPage = size_t{2} << 20;
constexpr int kOnHost = 3;  // CU_MEM_LOCATION_TYPE_HOST_NUMA

char* bytes_at(Pointer pointer) { return reinterpret_cast<char*>(pointer); }

Handle create(size_t bytes, const Properties& properties = {}) {
  Handle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, bytes, &properties, 0), 0);
  return handle;
}

Pointer reserve(size_t bytes, size_t alignment = 0) {
  Pointer begin = 0;
  EXPECT_EQ(cuMemAddressReserve(&begin, bytes, alignment, 0, 0), 0);
  return begin;
}

void map(Pointer at, size_t bytes, Handle handle, size_t offset = 0) {
  const Access access;
  ASSERT_EQ(cuMemMap(at, bytes, offset, handle, 0), 0);
  ASSERT_EQ(cuMemSetAccess(at, bytes, &access, 1), 0);
}

// As programs allocate: of the handle only the mapping is left.
Pointer allocate(size_t bytes, const Properties& properties = {}) {
  const Handle handle = create(bytes, properties);
  const Pointer begin = reserve(bytes);
  map(begin, bytes, handle);
  EXPECT_EQ(cuMemRelease(handle), 0);
  return begin;
}

void release(Pointer begin, size_t bytes) {
  EXPECT_EQ(cuMemUnmap(begin, bytes), 0);
  EXPECT_EQ(cuMemAddressFree(begin, bytes), 0);
}

size_t open_files() {
  size_t count = 0;
  for (int file = 0; file < 1000; ++file) count += fcntl(file, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(VirtualMemory, IsZeroedAndWhereItIsMapped) {
  const Pointer begin = allocate(2 * kPage);
  EXPECT_EQ(begin % kPage, 0U);
  char* const bytes = bytes_at(begin);
  EXPECT_TRUE(std::all_of(bytes, bytes + 2 * kPage, [](char one) { return one == 0; }));
  std::memset(bytes, 1, 2 * kPage);
  Pointer base = 0;
  size_t size = 0;
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &size, begin + kPage + 5), 0);
  EXPECT_EQ(base, begin);
  EXPECT_EQ(size, 2 * kPage);
  unsigned type = 0;
  constexpr int kType = 2;
  EXPECT_EQ(cuPointerGetAttribute(&type, kType, begin), 0);
  EXPECT_EQ(type, 2U);  // memory of a GPU
  release(begin, 2 * kPage);
  EXPECT_NE(cuMemGetAddressRange_v2(&base, &size, begin), 0);
}

TEST(VirtualMemory, OfTwoMappingsIsOneMemory) {
  const Handle handle = create(2 * kPage);
  const Pointer whole = reserve(2 * kPage);
  const Pointer half = reserve(kPage);
  map(whole, 2 * kPage, handle);
  map(half, kPage, handle, kPage);
  bytes_at(whole)[kPage + 9] = 7;
  EXPECT_EQ(bytes_at(half)[9], 7);
  EXPECT_EQ(cuMemRelease(handle), 0);
  release(whole, 2 * kPage);
  EXPECT_EQ(bytes_at(half)[9], 7);
  release(half, kPage);
}

TEST(VirtualMemory, HasOneHandleThatIsCounted) {
  const Handle handle = create(kPage);
  const Pointer begin = reserve(kPage);
  map(begin, kPage, handle);
  EXPECT_EQ(cuMemRelease(handle), 0);
  EXPECT_NE(cuMemRelease(handle), 0);
  for (int round = 0; round < 2; ++round) {
    Handle again = 0;
    EXPECT_EQ(cuMemRetainAllocationHandle(&again, bytes_at(begin + 100)), 0);
    EXPECT_EQ(again, handle);
  }
  EXPECT_EQ(cuMemRelease(handle), 0);
  EXPECT_EQ(cuMemRelease(handle), 0);
  EXPECT_NE(cuMemRelease(handle), 0);
  release(begin, kPage);
  Handle gone = 0;
  EXPECT_NE(cuMemRetainAllocationHandle(&gone, bytes_at(begin)), 0);
}

TEST(VirtualMemory, GoesToOthersByADescriptor) {
  const size_t before = open_files();
  Properties made;
  made.flags[1] = 1;
  const Handle handle = create(kPage, made);
  const Pointer own = reserve(kPage);
  map(own, kPage, handle);
  int descriptor = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&descriptor, handle, 1, 0), 0);
  Handle imported = 0;
  ASSERT_EQ(cuMemImportFromShareableHandle(
                &imported, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), 1),
            0);
  EXPECT_EQ(close(descriptor), 0);
  Properties seen;
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&seen, imported), 0);
  EXPECT_EQ(seen.flags, made.flags);
  const Pointer other = reserve(kPage);
  map(other, kPage, imported);
  bytes_at(own)[kPage - 1] = 3;
  EXPECT_EQ(bytes_at(other)[kPage - 1], 3);
  EXPECT_EQ(cuMemRelease(handle), 0);
  EXPECT_EQ(cuMemRelease(imported), 0);
  release(own, kPage);
  EXPECT_EQ(bytes_at(other)[kPage - 1], 3);
  release(other, kPage);
  EXPECT_EQ(open_files(), before);
}

TEST(VirtualMemory, AddressesAreAlignedAndUsedAgain) {
  constexpr size_t kGigabyte = size_t{1} << 30;
  const Pointer first = reserve(kPage);
  const Pointer aligned = reserve(3 * kPage, kGigabyte);
  EXPECT_EQ(aligned % kGigabyte, 0U);
  EXPECT_EQ(cuMemAddressFree(aligned, 3 * kPage), 0);
  EXPECT_EQ(reserve(3 * kPage, kGigabyte), aligned);
  EXPECT_EQ(cuMemAddressFree(aligned, 3 * kPage), 0);
  EXPECT_EQ(cuMemAddressFree(first, kPage), 0);
  Pointer too_many = 0;
  EXPECT_NE(cuMemAddressReserve(&too_many, size_t{1} << 40, 0, 0, 0), 0);
}

TEST(VirtualMemory, SeveralMappingsEndTogether) {
  const Pointer begin = reserve(4 * kPage);
  for (size_t part : {0, 1, 3}) {
    const Handle handle = create(kPage);
    map(begin + part * kPage, kPage, handle);
    EXPECT_EQ(cuMemRelease(handle), 0);
  }
  size_t bytes = 0;
  EXPECT_EQ(cuMemGetAddressRange_v2(nullptr, &bytes, begin + kPage), 0);
  EXPECT_EQ(bytes, kPage);
  const Access access;
  EXPECT_NE(cuMemUnmap(begin, 4 * kPage), 0) << "a hole";
  EXPECT_NE(cuMemSetAccess(begin, 4 * kPage, &access, 1), 0);
  EXPECT_NE(cuMemUnmap(begin + kPage / 2, kPage), 0) << "it cuts mappings";
  EXPECT_EQ(cuMemUnmap(begin + 3 * kPage, kPage), 0);
  EXPECT_EQ(cuMemUnmap(begin, 2 * kPage), 0);
  EXPECT_EQ(cuMemAddressFree(begin, 4 * kPage), 0);
}

TEST(VirtualMemory, RefusesWhatCudaRefuses) {
  const Properties properties;
  Handle handle = 0;
  EXPECT_NE(cuMemCreate(&handle, 0, &properties, 0), 0);
  EXPECT_NE(cuMemCreate(&handle, kPage + 4096, &properties, 0), 0);
  EXPECT_NE(cuMemCreate(&handle, kPage, std::vector<Properties>{{.handle_types = 8}}.data(), 0), 0);
  EXPECT_NE(cuMemCreate(&handle, kPage, std::vector<Properties>{{.location = 64}}.data(), 0), 0);
  EXPECT_NE(cuMemRelease(handle), 0);

  handle = create(2 * kPage, {.handle_types = 0});
  int descriptor = -1;
  EXPECT_NE(cuMemExportToShareableHandle(&descriptor, handle, 1, 0), 0);
  const Pointer begin = reserve(2 * kPage);
  EXPECT_NE(cuMemMap(begin, kPage, 2 * kPage, handle, 0), 0);
  EXPECT_NE(cuMemMap(begin, 4096, 0, handle, 0), 0);
  EXPECT_NE(cuMemMap(begin + kPage, 2 * kPage, 0, handle, 0), 0);  // beyond the reservation
  map(begin, 2 * kPage, handle);
  EXPECT_NE(cuMemMap(begin, kPage, 0, handle, 0), 0);
  EXPECT_NE(cuMemMap(begin + kPage, kPage, 0, handle, 0), 0);
  EXPECT_NE(cuMemUnmap(begin, kPage), 0);
  EXPECT_NE(cuMemAddressFree(begin, 2 * kPage), 0);
  EXPECT_NE(cuMemFree_v2(begin), 0);
  EXPECT_EQ(cuMemUnmap(begin, 2 * kPage), 0);
  EXPECT_NE(cuMemUnmap(begin, 2 * kPage), 0);
  EXPECT_NE(cuMemAddressFree(begin, kPage), 0);
  EXPECT_EQ(cuMemAddressFree(begin, 2 * kPage), 0);
  EXPECT_NE(cuMemAddressFree(begin, 2 * kPage), 0);
  EXPECT_EQ(cuMemRelease(handle), 0);

  const int other = open("/dev/null", O_RDONLY);
  EXPECT_NE(cuMemImportFromShareableHandle(
                &handle, reinterpret_cast<void*>(static_cast<intptr_t>(other)), 1),
            0);
  close(other);
  Pointer whole = 0;
  ASSERT_EQ(cuMemAlloc_v2(&whole, 100), 0);
  EXPECT_NE(cuMemRetainAllocationHandle(&handle, bytes_at(whole)), 0);
  EXPECT_NE(cuMemUnmap(whole, kPage), 0);
  EXPECT_EQ(cuMemFree_v2(whole), 0);
}

// --- processes of their own ---

class VirtualMemoryTrap : public testing::Test {
 protected:
  VirtualMemoryTrap() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~VirtualMemoryTrap() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

// The signal is expected: nobody needs a report, or all the memory in a file.
void expect_signals() {
  std::signal(SIGSEGV, SIG_DFL);
  const rlimit no_file{};
  setrlimit(RLIMIT_CORE, &no_file);
}

TEST_F(VirtualMemoryTrap, EndsAProcessThatTouchesMemoryBeforeAccessIsGiven) {
  const auto touches = [] {
    expect_signals();
    const Pointer begin = reserve(kPage);
    if (cuMemMap(begin, kPage, 0, create(kPage), 0) != 0) std::_Exit(1);
    *static_cast<volatile char*>(bytes_at(begin)) = 1;
    std::_Exit(1);
  };
  EXPECT_EXIT(touches(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(VirtualMemoryTrap, EndsAProcessThatTouchesGpuMemory) {
  const auto touches = [] {
    expect_signals();
    setenv("CPU_GPU_TRAP", "1", 1);
    *static_cast<volatile char*>(bytes_at(allocate(kPage))) = 1;
    std::_Exit(1);
  };
  EXPECT_EXIT(touches(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(VirtualMemoryTrap, LetsTheDeviceReadAndWriteAndTheHostItsOwn) {
  const auto works = [] {
    setenv("CPU_GPU_TRAP", "1", 1);
    const std::string text = "what a GPU copies";
    std::string back(text.size(), ' ');
    const Pointer on_gpu = allocate(kPage);
    cuMemcpyHtoD_v2(on_gpu + 9, text.data(), text.size());
    cuMemcpyDtoH_v2(back.data(), on_gpu + 9, text.size());
    const Pointer on_host = allocate(kPage, {.location_type = kOnHost});
    std::memcpy(bytes_at(on_host), text.data(), text.size());
    std::string of_host(text.size(), ' ');
    cuMemcpyDtoH_v2(of_host.data(), on_host, text.size());
    std::_Exit(back == text && of_host == text ? 0 : 1);
  };
  EXPECT_EXIT(works(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pacecar::cuda_calls_test
