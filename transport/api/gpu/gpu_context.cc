#include "transport/api/gpu/gpu_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "gdr/gpu_memory.h"
#include "transport/api/gpu/staged_connections.h"
#include "transport/api/memory.h"
#include "transport/api/plugin_calls.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// NCCL's slice; a receive of kMaxReceiveBuffers such messages fills a pinned ring.
constexpr uint64_t kStagedMessageBytes = 1 << 20;

// What GpuWays has chosen for the NIC, or for the NICs of a bond.
GpuWay way_of(const NicInfo& info) {
  if (!info.cuda) return GpuWay::kHost;
  if (info.gpu_message_bytes != 0) return GpuWay::kStaged;
  return info.dma_buf ? GpuWay::kDmaBuf : GpuWay::kPeerMemory;
}

// Listens or connects as the inner one does; connections are staged by their NIC's way.
template <typename Base>
class Staged : public Base {
 public:
  Staged(std::unique_ptr<Base> inner, std::shared_ptr<Context> context,
         std::shared_ptr<GpuSystem> gpus)
      : inner_(std::move(inner)), context_(std::move(context)), gpus_(std::move(gpus)) {}

 protected:
  template <typename Connection>
  Result<std::unique_ptr<Connection>> staged(Result<std::unique_ptr<Connection>> connection) {
    if (!connection || *connection == nullptr) return connection;
    const size_t nic = (*connection)->nic();
    return stage(std::move(*connection),
                 {.context = context_,
                  .nic = nic,
                  .gpus = gpus_,
                  .at_once = way_of(context_->nics()[nic]) == GpuWay::kStaged});
  }

  const std::unique_ptr<Base> inner_;

 private:
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<GpuSystem> gpus_;
};

class StagedListener final : public Staged<Listener> {
 public:
  using Staged::Staged;
  const Handle& handle() const override { return inner_->handle(); }
  Result<std::unique_ptr<ReceiveConnection>> accept() override { return staged(inner_->accept()); }
};

class StagedConnecting final : public Staged<Connecting> {
 public:
  using Staged::Staged;
  Result<std::unique_ptr<SendConnection>> poll() override { return staged(inner_->poll()); }
};

class GpuContext final : public Context, public CopyingContext {
 public:
  GpuContext(std::unique_ptr<Context> inner, std::shared_ptr<GpuSystem> gpus, LogSink log)
      : inner_(std::move(inner)), gpus_(std::move(gpus)), log_(log) {}

  std::span<const NicInfo> nics() const override { return inner_->nics(); }
  Result<size_t> bond(std::span<const size_t> nics) override { return inner_->bond(nics); }
  std::string banner() const override { return inner_->banner(); }

  Result<std::unique_ptr<Listener>> listen(size_t nic) override {
    auto listener = inner_->listen(nic);
    if (!listener || way(nic) == GpuWay::kHost) return listener;
    return std::make_unique<StagedListener>(std::move(*listener), inner_, gpus_);
  }

  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                              const ConnectOptions& options) override {
    auto connecting = inner_->connect(nic, handle, options);
    if (!connecting || way(nic) == GpuWay::kHost) return connecting;
    return std::make_unique<StagedConnecting>(std::move(*connecting), inner_, gpus_);
  }

  void expect(uint32_t senders) override { inner_->expect(senders); }

  Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) override;

  Result<void> deregister_memory(size_t nic, const Memory* memory) override {
    if (memory->staged() == nullptr) return inner_->deregister_memory(nic, memory);
    memory->staged()->withdraw();
    delete memory;
    return {};
  }

  Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& range) override {
    ASSIGN_OR_RETURN(const auto kind,
                     kind_of_gpu_range(gpus_->driver(), range.address, range.length));
    return copies_of(range, kind.device);
  }

  Result<std::optional<FlushId>> start_flush(size_t nic, const Memory* memory,
                                             const void* data) override;
  Result<bool> flushed(size_t nic, FlushId flush) override { return inner_->flushed(nic, flush); }

  void progress(size_t nic) override { inner_->progress(nic); }
  void rest(size_t nic) override { inner_->rest(nic); }
  Statistics statistics(size_t nic) const override { return inner_->statistics(nic); }

 private:
  GpuWay way(size_t nic) const { return nic < nics().size() ? way_of(nics()[nic]) : GpuWay::kHost; }
  Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& range, int device);
  Result<const Memory*> register_direct(size_t nic, const MemoryRange& range);
  Result<void> flush_without_read(const void* data);
  Result<const Memory*> register_dmabuf(size_t nic, MemoryRange range);

  const std::shared_ptr<Context> inner_;
  const std::shared_ptr<GpuSystem> gpus_;
  const LogSink log_;
  std::atomic<bool> refusal_reported_ = false;
};

Result<const Memory*> GpuContext::register_memory(size_t nic, const MemoryRange& range) {
  const bool passes = range.kind == MemoryKind::kHost || way(nic) == GpuWay::kHost;
  if (passes) return inner_->register_memory(nic, range);
  ASSIGN_OR_RETURN(const auto kind,
                   kind_of_gpu_range(gpus_->driver(), range.address, range.length));
  if (is_direct(way(nic)) && !kind.managed) {
    MemoryRange known = range;
    known.gpu = kind.device;
    known.allocation = kind.allocation;
    auto direct = register_direct(nic, known);
    if (direct) return direct;
    if (!refusal_reported_.exchange(true)) {
      log_(LogLevel::kWarn,
           fmt::format("{}: GPU memory cannot be registered and is staged through pinned host "
                       "memory instead, here and wherever else: {}",
                       nics()[nic].name, direct.error().message));
    }
  }
  ASSIGN_OR_RETURN(auto staged, copies_of(range, kind.device));
  return new Memory(std::move(staged));
}

Result<std::shared_ptr<StagedRange>> GpuContext::copies_of(const MemoryRange& range, int device) {
  ASSIGN_OR_RETURN(const auto engine, gpus_->engine(device));
  return std::make_shared<StagedRange>(engine, range.address, range.length);
}

Result<const Memory*> GpuContext::register_direct(size_t nic, const MemoryRange& range) {
  std::optional<Error> refusal;  // of the dma-buf: the error to report
  if (way(nic) == GpuWay::kDmaBuf) {
    auto exported = register_dmabuf(nic, range);
    if (exported) return exported;
    refusal = exported.error();
  }
  MemoryRange by_address = range;
  by_address.dmabuf_fd = -1;
  auto registered = inner_->register_memory(nic, by_address);
  if (!registered && refusal) return tl::unexpected(*refusal);
  return registered;
}

Result<const Memory*> GpuContext::register_dmabuf(size_t nic, MemoryRange range) {
  if (range.dmabuf_fd >= 0) return inner_->register_memory(nic, range);
  ASSIGN_OR_RETURN(auto exported, export_dmabuf(gpus_->driver(), range.address, range.length));
  range.dmabuf_fd = exported.fd.get();
  range.dmabuf_offset = exported.offset;
  return inner_->register_memory(nic, range);
}

// Flushes even if the GPU's attributes make it unnecessary, as the caller requests it.
Result<std::optional<FlushId>> GpuContext::start_flush(size_t nic, const Memory* memory,
                                                       const void* data) {
  if (memory->staged() != nullptr) return std::nullopt;  // the GPU has copied it
  auto read = inner_->start_flush(nic, memory, data);
  if (!read || *read || memory->host()) return read;
  RETURN_IF_ERROR(flush_without_read(data));
  return std::nullopt;
}

// For NICs that never read.
Result<void> GpuContext::flush_without_read(const void* data) {
  ASSIGN_OR_RETURN(const auto kind, kind_of_pointer(gpus_->driver(), data));
  const auto gpu = std::ranges::find(gpus_->gpus(), kind.device, &Gpu::device);
  if (kind.cuda && gpu != gpus_->gpus().end() && gpu->orders_writes) return {};
  if (!kind.cuda || gpu == gpus_->gpus().end() || !gpu->flush_call) {
    return fail(ErrorCode::kUnavailable,
                "neither the NIC nor the GPU's driver can flush GPU memory: set PACECAR_GPU=host");
  }
  ASSIGN_OR_RETURN(const auto engine, gpus_->engine(kind.device));
  return engine->flush_writes();
}

}  // namespace

Result<std::span<const Gpu>> GpuWays::gpus() {
  if (!system_) system_ = GpuSystem::open();
  if (!*system_) return tl::unexpected(system_->error());
  return std::span<const Gpu>((**system_)->gpus());
}

void GpuWays::choose(const NicReach& nic, NicInfo& info) {
  Result<std::span<const Gpu>> found;  // empty if the way does not depend on them
  if (depends_on_gpus(setting_, nic)) found = gpus();
  const GpuChoice choice = choose_gpu_way(setting_, nic, found);
  info.cuda = choice.way != GpuWay::kHost;
  info.dma_buf = choice.way == GpuWay::kDmaBuf;
  info.gpu_message_bytes = choice.way == GpuWay::kStaged ? kStagedMessageBytes : 0;
  info.gpu_memory = describe(choice);
  if (is_direct(choice.way)) info.gpu_flush = !std::ranges::all_of(*found, &Gpu::orders_writes);
  if (choice.refused) {
    log_(LogLevel::kWarn,
         fmt::format("{}: PACECAR_GPU={} cannot be had; {}", info.name,
                     setting_ == GpuSetting::kStaged ? "staged" : "direct", info.gpu_memory));
  }
}

std::unique_ptr<Context> GpuWays::apply(std::unique_ptr<Context> context) const {
  if (std::ranges::none_of(context->nics(), &NicInfo::cuda)) return context;
  return std::make_unique<GpuContext>(std::move(context), **system_, log_);
}

}  // namespace pacecar
