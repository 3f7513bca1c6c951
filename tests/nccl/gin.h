// The part of a kernel that puts into other ranks' windows by NCCL's GIN, played by the host: it
// writes the descriptors that NCCL's proxy thread hands to the plugin, and reads signals and
// counters. The layouts are from NCCL 2.29.7 (nccl_device/). Nothing of the GPU's memory is
// touched but by copies. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/nccl/more_calls.h"

namespace pacecar::nccl_test {

// ncclWindow_vidmem, as far as it is needed: a window as kernels see it.
struct GinWindow {
  std::array<uint64_t, 4> unused;
  uint32_t offset_4k;
  uint32_t padding;
  std::array<uint64_t, 4> handles;  // by connection
};

struct GinPut {
  int peer;
  const GinWindow* from;
  size_t from_offset;
  const GinWindow* to;
  size_t to_offset;
  size_t bytes;
};

// The signal that the proxy raises at a put's target. `id` counts the program's signals from 0.
struct GinSignal {
  uint32_t id;
  uint64_t add;  // 0: increments
};

class Gin {
 public:
  // All ranks make and end theirs together.
  Gin(NcclCommunicator communicator, int signals, int counters);
  ~Gin();
  Gin(const Gin&) = delete;
  Gin& operator=(const Gin&) = delete;

  int contexts() const { return static_cast<int>(contexts_.size()); }
  static GinWindow window(void* handle);

  // Without `counter` (negative) and without `signal` (nullptr) there is none.
  void put(int context, const GinPut& put, const GinSignal* signal, int counter);
  void put_value(int context, const GinPut& put, uint64_t value, const GinSignal* signal);
  // Adds to the word in the window, without a put.
  void add(int context, int peer, const GinWindow& to, size_t offset, uint64_t value);
  // Until all that this context has put has left the memory here.
  void flush(int context);

  uint64_t signal(int context, uint32_t id) const;
  uint64_t counter(int context, int id) const;

 private:
  static constexpr size_t kWords = 8;
  using Descriptor = std::array<uint64_t, kWords>;

  struct Requirements {  // ncclDevCommRequirements
    size_t bytes = sizeof(Requirements);
    unsigned magic = 0xcafebeef;
    unsigned version = 22907;
    std::array<void*, 2> lists{};
    bool multimem = false;
    std::array<int, 5> barriers{};
    bool force = false;
    int contexts = 4;
    int signals;
    int counters;
    int connection = 1;  // to all ranks
    bool exclusive = false;
    int queue_depth = 0;
  };
  struct Communicator {  // ncclDevComm
    int rank;
    int ranks;
    std::array<uint64_t, 16> unused;
    uint8_t connections;
    std::array<uint8_t, 4> types;
    std::array<uint64_t, 4> handles;
    uint32_t first_signal;
    int signals;
    uint32_t first_counter;
    int counters;
    uint64_t shadows;
    uint32_t contexts;
    uint32_t first_context;
    std::array<uint64_t, 2> rest;
  };
  static_assert(sizeof(Communicator) == 224);
  struct Context {  // ncclGinProxyGpuCtx_t
    int ranks;
    uint32_t entries;
    Descriptor* queues;
    uint64_t posted;
    uint32_t* consumed;
    uint64_t counters;
    uint64_t signals;
  };
  struct Queues {
    Context context;
    uint32_t connection;
    std::vector<uint32_t> posted;  // by peer
  };

  struct Source {  // words of a descriptor
    uint64_t operation;
    uint64_t from;
    uint64_t window;
  };
  void start(int context, const GinPut& put, Source source, const GinSignal* signal, int counter);
  uint64_t handle(int context, const GinWindow& window) const;
  void post(int context, int peer, const Descriptor& descriptor);

  const NcclCommunicator nccl_;
  Communicator communicator_{};
  std::vector<Queues> contexts_;
};

}  // namespace pacecar::nccl_test
