#include "bench/perf/message_buffer.h"

#include <fmt/core.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace pacecar::perf {
namespace {
constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2 << 20;
constexpr int kHugeShift = 21 << MAP_HUGE_SHIFT;
}  // namespace

void FreePages::operator()(uint8_t* bytes) const {
  if (mapped == 0) return std::free(bytes);
  munmap(bytes, mapped);
}

Result<MessageBuffer> MessageBuffer::create(Context& context, size_t nic, uint64_t size,
                                            size_t slots, bool huge) {
  MessageBuffer buffer;
  buffer.size_ = size;
  buffer.stride_ = (size + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t page = huge ? kHugePage : kPage;
  const uint64_t length = (buffer.stride_ * slots + page - 1) / page * page;
  if (huge) {
    void* const mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | kHugeShift, -1, 0);
    if (mapped == MAP_FAILED) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("no {} huge pages of 2 MiB are free: sysctl -w vm.nr_hugepages={}, "
                              "or leave out --use_hugepages",
                              length / page, length / page));
    }
    buffer.bytes_ = {static_cast<uint8_t*>(mapped), FreePages{length}};
  } else {
    buffer.bytes_.reset(static_cast<uint8_t*>(std::aligned_alloc(page, length)));
  }
  if (!buffer.bytes_) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("no memory for {} MiB of messages: lower -s, -q, -t or -r", length >> 20));
  }
  std::memset(buffer.bytes_.get(), 0, length);  // touches the pages before the clock runs
  const auto memory = context.register_memory(nic, buffer.bytes_.get(), length);
  if (!memory) return tl::unexpected(memory.error());
  buffer.context_ = &context;
  buffer.nic_ = nic;
  buffer.memory_ = *memory;
  return buffer;
}

MessageBuffer::~MessageBuffer() {
  // Nothing to do for a failure here; a moved-from buffer owns no bytes.
  if (bytes_ && memory_ != nullptr) {
    static_cast<void>(context_->deregister_memory(nic_, memory_));
  }
}

}  // namespace pacecar::perf
