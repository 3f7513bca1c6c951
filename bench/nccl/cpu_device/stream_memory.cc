// Memory that streams write and wait for, of GPUs and of the host.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/driver.h"
#include "bench/nccl/cpu_device/memory.h"

using namespace pacecar::nccl::cpu;

namespace {

enum class MemoryOperation : uint32_t {
  kWait32 = 1,
  kWrite32 = 2,
  kFlush = 3,
  kWait64 = 4,
  kWrite64 = 5
};

struct Step {  // CUstreamBatchMemOpParams
  MemoryOperation operation;
  DevicePointer address;
  uint64_t value;
  uint32_t flags;
  uint64_t alias;
  uint64_t unused;
};
static_assert(sizeof(Step) == 48);

template <typename Word>
bool holds(Word seen, Word wanted, uint32_t flags) {
  constexpr uint32_t kCondition = 3;
  switch (flags & kCondition) {
    case 0:  // reached; words wrap around
      return static_cast<std::make_signed_t<Word>>(seen - wanted) >= 0;
    case 1:
      return seen == wanted;
    case 2:
      return (seen & wanted) != 0;
    default:
      return static_cast<Word>(~(seen | wanted)) != 0;
  }
}

template <typename Word>
bool waits(const Step& step) {
  std::atomic_ref word(*view(reinterpret_cast<Word*>(step.address)));
  return holds(word.load(), static_cast<Word>(step.value), step.flags);
}

template <typename Word>
bool writes(const Step& step) {
  std::atomic_ref word(*view(reinterpret_cast<Word*>(step.address)));
  word.store(static_cast<Word>(step.value));
  return true;
}

// False: it is still to be waited for.
bool done(const Step& step) {
  switch (step.operation) {
    case MemoryOperation::kWait32:
      return waits<uint32_t>(step);
    case MemoryOperation::kWait64:
      return waits<uint64_t>(step);
    case MemoryOperation::kWrite32:
      return writes<uint32_t>(step);
    case MemoryOperation::kWrite64:
      return writes<uint64_t>(step);
    case MemoryOperation::kFlush:  // what NICs write is in memory at once
      return true;
  }
  return true;
}

Status enqueue(void* stream, std::vector<Step> steps) {
  for (const Step& step : steps) {
    if (step.operation < MemoryOperation::kWait32 || step.operation > MemoryOperation::kWrite64) {
      return kNotSupported;
    }
  }
  Stream& when = stream_of(stream);
  when.gpu().enqueue(when, [steps = std::move(steps), next = size_t{0}]() mutable {
    while (next < steps.size() && done(steps[next])) ++next;
    return next == steps.size();
  });
  return kSuccess;
}

}  // namespace

CPU_DEVICE_EXPORT int cuStreamBatchMemOp_v2(void* stream, unsigned count, const Step* steps,
                                            unsigned) {
  return enqueue(stream, {steps, steps + count});
}

CPU_DEVICE_EXPORT int cuStreamWaitValue32_v2(void* stream, DevicePointer address, uint32_t value,
                                             unsigned flags) {
  return enqueue(stream, {{MemoryOperation::kWait32, address, value, flags, 0, 0}});
}

CPU_DEVICE_EXPORT int cuStreamWaitValue64_v2(void* stream, DevicePointer address, uint64_t value,
                                             unsigned flags) {
  return enqueue(stream, {{MemoryOperation::kWait64, address, value, flags, 0, 0}});
}

CPU_DEVICE_EXPORT int cuStreamWriteValue32_v2(void* stream, DevicePointer address, uint32_t value,
                                              unsigned flags) {
  return enqueue(stream, {{MemoryOperation::kWrite32, address, value, flags, 0, 0}});
}

CPU_DEVICE_EXPORT int cuStreamWriteValue64_v2(void* stream, DevicePointer address, uint64_t value,
                                              unsigned flags) {
  return enqueue(stream, {{MemoryOperation::kWrite64, address, value, flags, 0, 0}});
}
