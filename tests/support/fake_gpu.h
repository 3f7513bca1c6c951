// The fake driver, loaded under the driver's name: after that, dlopen of libcuda.so.1 in this
// process returns it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/gdr/fake_cuda.h"

namespace pacecar::test {

class FakeGpu {
 public:
  explicit FakeGpu(const std::string& library)
      : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    reset();
  }

  // Calls `use(FakeCuda&)` while no other thread uses the driver.
  template <typename Use>
  auto with(Use use) const {
    using Value = std::invoke_result_t<Use, FakeCuda&>;
    if constexpr (std::is_void_v<Value>) {
      call<decltype(fake_cuda_use)>("fake_cuda_use")(
          [](FakeCuda& fake, void* argument) { (*static_cast<Use*>(argument))(fake); }, &use);
    } else {
      Value value{};
      with([&](FakeCuda& fake) { value = use(fake); });
      return value;
    }
  }
  // Resets all settings; existing allocations and contexts stay.
  void reset() const {
    with([](FakeCuda& fake) {
      fake = FakeCuda{.host_allocations = fake.host_allocations, .streams = fake.streams};
    });
  }

  void* allocate(size_t bytes, int device = 0) const {
    return call<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(bytes, device);
  }
  void free(void* memory) const { call<decltype(fake_cuda_free)>("fake_cuda_free")(memory); }
  void write(void* memory, std::span<const uint8_t> bytes) const {
    call<decltype(fake_cuda_write)>("fake_cuda_write")(memory, bytes.data(), bytes.size());
  }
  std::vector<uint8_t> read(const void* memory, size_t bytes) const {
    std::vector<uint8_t> all(bytes);
    call<decltype(fake_cuda_read)>("fake_cuda_read")(all.data(), memory, bytes);
    return all;
  }

 private:
  template <typename Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* const library_;  // never unloaded, like a driver
};

// GPU memory of a test.
class GpuBuffer {
 public:
  GpuBuffer(const FakeGpu& gpu, size_t bytes, int device = 0)
      : gpu_(gpu), bytes_(bytes), data_(static_cast<uint8_t*>(gpu.allocate(bytes, device))) {}
  ~GpuBuffer() { gpu_.free(data_); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  uint8_t* data() const { return data_; }
  // A pointer to pass on; the processor must not read it.
  std::span<uint8_t> bytes() const { return {data_, bytes_}; }
  void write(std::span<const uint8_t> from, size_t offset = 0) const {
    gpu_.write(data_ + offset, from);
  }
  std::vector<uint8_t> read() const { return gpu_.read(data_, bytes_); }

 private:
  const FakeGpu& gpu_;
  const size_t bytes_;
  uint8_t* const data_;
};

}  // namespace pacecar::test
