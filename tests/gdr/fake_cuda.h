// How tests steer the fake driver (fake_cuda.cc), beside its CUDA entry points.
#pragma once

#include <cstddef>
#include <cstdint>

// What the fake driver does. Tests set it before the driver is initialised, or between steps.
struct FakeCuda {
  int devices = 1;
  int init_status = 0;          // of cuInit
  bool dma_buf = true;          // exports memory
  bool refuses_export = false;  // says that it exports, and then refuses
  bool peer_memory = true;
  int flush_options = 1;  // as the device's attribute
  int writes_ordering = 0;
  bool managed = false;      // memory moves between host and GPU
  bool copies_fail = false;  // when they run
  bool copies_wait = false;  // until this is false again
  int copies_late = 1;       // how often the program gets its turn before each
  bool host_memory_fails = false;
  int copy_failure = 0;  // of the first copy that failed; as with CUDA it stays
  // What was called.
  int flushes = 0;
  int copies = 0;
  int host_allocations = 0;  // alive
  int streams = 0;           // alive
};

extern "C" {
// The one instance; hold its lock for as long as you look at it or change it.
using FakeCudaUse = void (*)(FakeCuda&, void*);
void fake_cuda_use(FakeCudaUse use, void* argument);
// GPU memory that nobody but these functions and the driver's copies can touch.
void* fake_cuda_allocate(size_t bytes, int device);
void fake_cuda_free(void* memory);
void fake_cuda_write(void* memory, const void* from, size_t bytes);
void fake_cuda_read(void* to, const void* memory, size_t bytes);
}
