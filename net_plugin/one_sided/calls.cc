#include "net_plugin/one_sided/calls.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net_plugin/abi/one_sided.h"
#include "net_plugin/communicator.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/guarded.h"
#include "net_plugin/log.h"
#include "transport/rma/group.h"

namespace pacecar::plugin::one_sided {
namespace {

using nccl::NcclResult;

// Holds the Context, which may outlive the communicator (after an abort).
struct Collective {
  std::shared_ptr<Context> context;
  std::unique_ptr<rma::Group> group;
};

struct PutContext {
  Collective* collective;
  int contexts;
};

rma::Group& group_of(void* collective) { return *static_cast<Collective*>(collective)->group; }

rma::Location location(const At& at) {
  return {static_cast<const rma::SharedWindow*>(at.window), at.offset};
}

NcclResult hand_over(std::string_view call, const Result<rma::Operation*>& started,
                     void** request) {
  if (!started) return report(call, started.error());
  *request = *started;
  return NcclResult::kSuccess;
}

Result<rma::Signal> signal_of(const SignalCall& call) {
  if (call.operation != nccl::kSignalIncrement && call.operation != nccl::kSignalAdd) {
    return fail(ErrorCode::kInvalidArgument, "a signal of operation " +
                                                 std::to_string(call.operation) +
                                                 ": it increments (1) or adds (2)");
  }
  return rma::Signal{.word = location(call.word),
                     .value = call.operation == nccl::kSignalIncrement ? 1 : call.value};
}

// Whether the user has named Pacecar. NCCL looks for these tables in every net plugin. But its own
// plugin for RDMA NICs signals by the NIC's atomics, while ours copies each signal. So ours is used
// on request only.
bool is_named() {
  for (const char* const variable : {"NCCL_RMA_PLUGIN", "NCCL_GIN_PLUGIN"}) {
    const char* const named = std::getenv(variable);
    if (named != nullptr && std::strstr(named, "pacecar") != nullptr) return true;
  }
  return false;
}

constexpr const char* kNoCollective = "a one-sided operation was called without a communicator";

}  // namespace

NcclResult init(void** context, uint64_t /*comm_id*/, nccl::Logger logger) noexcept {
  *context = nullptr;
  if (is_named()) return plugin::init(context, logger, nccl::kUndefined);
  return guarded([&] {
    set_logger(logger);
    log(LogLevel::kInfo,
        "one-sided operations are left to NCCL's next plugin: NCCL_RMA_PLUGIN=pacecar or "
        "NCCL_GIN_PLUGIN=pacecar asks for ours");
    return NcclResult::kInvalidUsage;
  });
}

// NCCL may pass the net plugin's context, so the listener's own is used.
NcclResult connect(void* /*context*/, void* handles[], int ranks, int rank, void* listen_comm,
                   void** collective) noexcept {
  *collective = nullptr;
  return guarded([&] {
    if (listen_comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
      return misuse("connect was called for rank " + std::to_string(rank) + " of " +
                    std::to_string(ranks) + ", or without a listener");
    }
    const auto& listening = *static_cast<ListenComm*>(listen_comm);
    std::vector<Handle> copies(static_cast<size_t>(ranks));
    for (size_t i = 0; i < copies.size(); ++i) {
      std::memcpy(copies[i].bytes.data(), handles[i], Handle::kBytes);
    }
    auto group = rma::Group::join(listening.context, listening.nic, *listening.listener, copies,
                                  static_cast<size_t>(rank), listening.weight, log_sink());
    if (!group) return report("connect", group.error());
    *collective = new Collective{listening.context, std::move(*group)};
    return NcclResult::kSuccess;
  });
}

NcclResult close_collective(void* collective) noexcept { return destroy<Collective>(collective); }

NcclResult create_context(void* collective, int contexts, int traffic_class,
                          void** context) noexcept {
  *context = nullptr;
  return guarded([&] {
    if (collective == nullptr || contexts < 1) {
      return misuse("createContext was called for " + std::to_string(contexts) +
                    " contexts, or without a communicator");
    }
    auto& owner = *static_cast<Collective*>(collective);
    if (const auto wanted = checked_traffic_class(traffic_class)) {
      Communicator(owner.context, 0).check_traffic_class(*wanted);
    }
    *context = new PutContext{&owner, contexts};
    return NcclResult::kSuccess;
  });
}

NcclResult destroy_context(void* context) noexcept { return destroy<PutContext>(context); }

void* collective_of(void* context, int number) {
  auto* const put_context = static_cast<PutContext*>(context);
  const bool there = put_context != nullptr && number >= 0 && number < put_context->contexts;
  return there ? put_context->collective : nullptr;
}

NcclResult share_dmabuf(void* collective, void* data, size_t size, int type, uint64_t offset,
                        int fd, uint64_t /*flags*/, void** window) noexcept {
  *window = nullptr;
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    const Result<MemoryRange> range = memory_range(data, size, type, offset, fd);
    if (!range) return report("register a window", range.error());
    const Result<rma::SharedWindow*> shared = group_of(collective).share(*range);
    if (!shared) return report("register a window", shared.error());
    *window = *shared;
    return NcclResult::kSuccess;
  });
}

NcclResult share_memory(void* collective, void* data, size_t size, int type, uint64_t flags,
                        void** window) noexcept {
  return share_dmabuf(collective, data, size, type, 0, kNoFile, flags, window);
}

NcclResult unshare(void* collective, void* window) noexcept {
  return guarded([&] {
    if (collective == nullptr || window == nullptr) return misuse("deregMrSym of no window");
    group_of(collective).unshare(static_cast<rma::SharedWindow*>(window));
    return NcclResult::kSuccess;
  });
}

NcclResult put(void* collective, const At& from, size_t size, const At& to, uint32_t rank,
               const SignalCall* signal, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    std::optional<rma::Signal> adds;
    if (signal != nullptr) {
      const Result<rma::Signal> checked = signal_of(*signal);
      if (!checked) return report("iputSignal", checked.error());
      adds = *checked;
    }
    return hand_over(
        "iput", group_of(collective).put(rank, location(from), size, location(to), adds), request);
  });
}

NcclResult get(void* collective, const At& from, size_t size, const At& to, uint32_t rank,
               void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    return hand_over("iget", group_of(collective).get(rank, location(from), size, location(to)),
                     request);
  });
}

NcclResult flush(void* collective, uint32_t rank, void** request) noexcept {
  *request = nullptr;
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    return hand_over("iflush", group_of(collective).flush(rank), request);
  });
}

NcclResult test(void* collective, void* request, int* done) noexcept {
  *done = 0;
  return guarded([&] {
    if (collective == nullptr || request == nullptr) {
      return misuse("test was called without a request");
    }
    const Result<bool> tested = group_of(collective).test(static_cast<rma::Operation*>(request));
    if (!tested) {
      report("one-sided operation", tested.error());
      return data_result(tested.error().code);
    }
    *done = *tested ? 1 : 0;
    return NcclResult::kSuccess;
  });
}

NcclResult progress(void* collective) noexcept {
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    group_of(collective).progress();
    return NcclResult::kSuccess;
  });
}

NcclResult last_error(void* collective, bool* has_error) noexcept {
  *has_error = false;
  return guarded([&] {
    if (collective == nullptr) return misuse(kNoCollective);
    *has_error = group_of(collective).failure().has_value();
    return NcclResult::kSuccess;
  });
}

}  // namespace pacecar::plugin::one_sided
