// The controls of the fake driver (fake_cuda.cc), in addition to its CUDA entry points.
#pragma once

#include <cstddef>
#include <cstdint>

// The fake driver's behaviour, which tests set before the driver is initialised or between steps.
struct FakeCuda {
  int devices = 1;
  int init_status = 0;          // returned by cuInit
  int count_status = 0;         // returned by cuDeviceGetCount, which writes the number in any case
  bool dma_buf = true;          // the device attribute
  bool refuses_export = false;  // the export fails, whatever dma_buf is
  bool peer_memory = true;
  int flush_options = 1;  // the device attribute
  int writes_ordering = 0;
  bool managed = false;      // allocations are managed memory
  bool copies_fail = false;  // at the time they run, not at the call
  bool copies_wait = false;  // no stream makes progress
  bool records_fail = false;
  int late = 0;  // how many queries of events pass before streams make progress
  bool host_memory_fails = false;
  bool capturing = false;  // another thread captures a graph, in the global mode
  int copy_failure = 0;    // set by a failed copy; permanent, as with CUDA
  // Counters.
  int broken_captures = 0;
  int flushes = 0;
  int copies = 0;
  int host_allocations = 0;  // alive
  int streams = 0;           // alive
  int early_frees = 0;       // of host memory while streams have work
};

extern "C" {
// Calls `use` with the one instance, under its lock.
using FakeCudaUse = void (*)(FakeCuda&, void*);
void fake_cuda_use(FakeCudaUse use, void* argument);
// GPU memory, which only these functions and the driver's copies can access.
void* fake_cuda_allocate(size_t bytes, int device);
void fake_cuda_free(void* memory);
void fake_cuda_write(void* memory, const void* from, size_t bytes);
void fake_cuda_read(void* to, const void* memory, size_t bytes);
}
