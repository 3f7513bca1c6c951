#include "bench/perf/message_buffer.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <thread>
#include <utility>

#include "bench/perf/pattern.h"
#include "gdr/gpu_memory.h"
#include "gdr/gpu_system.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

// A PCI address in lower case, without leading zeros and colons: sysfs has 0000:3b:00.0, nvidia-smi
// 00000000:3B:00.0, lspci 3b:00.0.
std::string bare_bus_id(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.erase(0, text.find_first_not_of("0:"));
}

bool is_wanted(const Gpu& gpu, const GpuFlags& flags) {
  if (!flags.bus_id.empty()) return bare_bus_id(gpu.pci_bus_id) == bare_bus_id(flags.bus_id);
  return gpu.device == flags.device;
}

constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2 << 20;
constexpr int kHugeShift = 21 << MAP_HUGE_SHIFT;

}  // namespace

Result<MessagePlace> find_place(const TestOptions& options) {
  MessagePlace place{.huge_pages = options.huge_pages, .gpu = {}, .dma_buf = options.gpu.dma_buf};
  if (!options.gpu.wanted()) return place;
  ASSIGN_OR_RETURN(const auto system, GpuSystem::open());
  std::vector<std::string> known;
  for (const Gpu& gpu : system->gpus()) {
    known.push_back(fmt::format("{} at {}", gpu.device, gpu.pci_bus_id));
    if (!is_wanted(gpu, options.gpu)) continue;
    ASSIGN_OR_RETURN(place.gpu, system->engine(gpu.device));
    return place;
  }
  const std::string& bus_id = options.gpu.bus_id;
  const std::string wanted = bus_id.empty() ? std::to_string(options.gpu.device) : bus_id;
  return fail(ErrorCode::kNotFound, "there is no GPU {}: name one of {}", wanted,
              fmt::join(known, ", "));
}

void Unmap::operator()(uint8_t* bytes) const { munmap(bytes, length); }

Result<MessageBuffer> MessageBuffer::create(Context& context, size_t nic, uint64_t size,
                                            size_t slots, const MessagePlace& place) {
  if (place.dma_buf && !context.nics()[nic].dma_buf) {
    const NicInfo& info = context.nics()[nic];
    return fail(ErrorCode::kUnavailable, "{} takes no dma-buf ({}): leave out --use_cuda_dmabuf",
                info.name, info.gpu_memory);
  }
  MessageBuffer buffer;
  buffer.size_ = size;
  buffer.stride_ = (size + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t page = place.huge_pages ? kHugePage : kPage;
  const uint64_t length = (buffer.stride_ * slots + page - 1) / page * page;
  ASSIGN_OR_RETURN(auto range, place.gpu != nullptr
                                   ? buffer.allocate_gpu(length, place.gpu)
                                   : buffer.allocate_host(length, place.huge_pages));
  DmaBuf exported;
  if (place.dma_buf) {
    ASSIGN_OR_RETURN(exported, export_dmabuf(place.gpu->driver(), range.address, length));
    range.dmabuf_fd = exported.fd.get();
    range.dmabuf_offset = exported.offset;
  }
  ASSIGN_OR_RETURN(const auto memory, context.register_memory(nic, range));
  buffer.context_ = &context;
  buffer.nic_ = nic;
  buffer.memory_ = memory;
  return buffer;
}

Result<MemoryRange> MessageBuffer::allocate_gpu(uint64_t length,
                                                std::shared_ptr<const CopyEngine> gpu) {
  ASSIGN_OR_RETURN(gpu_, GpuAllocation::make(std::move(gpu), length));
  base_ = gpu_->address();
  copy_.resize(size_);
  return MemoryRange{.address = base_, .length = length, .kind = MemoryKind::kCuda};
}

Result<MemoryRange> MessageBuffer::allocate_host(uint64_t length, bool huge) {
  const int pages = huge ? MAP_HUGETLB | kHugeShift : 0;
  // Populated, so that no page is touched first while the clock runs.
  void* const mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | pages, -1, 0);
  if (mapped == MAP_FAILED && huge) {
    return fail(ErrorCode::kUnavailable,
                "no {0} huge pages of 2 MiB are free: sysctl -w vm.nr_hugepages={0}, or leave out "
                "--use_hugepages",
                length / kHugePage);
  }
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kUnavailable, "no memory for {} MiB of messages: lower -s, -q, -t or -r",
                length >> 20);
  }
  bytes_ = {static_cast<uint8_t*>(mapped), Unmap{length}};
  base_ = bytes_.get();
  return MemoryRange{.address = base_, .length = length};
}

MessageBuffer::~MessageBuffer() {
  // A failure cannot be handled here; a moved-from buffer owns nothing.
  if ((bytes_ || gpu_) && memory_ != nullptr) {
    static_cast<void>(context_->deregister_memory(nic_, memory_));
  }
}

Result<void> MessageBuffer::fill(size_t index, uint64_t number) {
  const auto message = slot(index);
  fill_pattern(gpu_ ? std::span(copy_) : message, number);
  return gpu_ ? gpu_->write(message.data(), copy_) : Result<void>();
}

Result<std::optional<size_t>> MessageBuffer::find_mismatch(size_t index, uint64_t number) {
  const auto message = slot(index);
  if (!gpu_) return perf::find_mismatch(message, number);
  ASSIGN_OR_RETURN(const auto flush, context_->start_flush(nic_, memory_, message.data()));
  while (flush) {  // until the GPU sees what the NIC has written
    ASSIGN_OR_RETURN(const auto done, context_->flushed(nic_, *flush));
    if (done) break;
    std::this_thread::yield();
  }
  RETURN_IF_ERROR(gpu_->read(copy_, message.data()));
  return perf::find_mismatch(copy_, number);
}

}  // namespace pacecar::perf
