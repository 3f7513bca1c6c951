// NCCL's tables for one-sided operations in proxy mode, GIN 11 to 13 and RMA 13 to 16. The
// functions translate void pointers to objects, and Result to ncclResult_t. A collective
// communicator is the group of its ranks; a context is a set of queues in it, which all share the
// group's order. Weak signals are treated as strong, and puts are posted at once, whatever the
// flags announce. Each writes its outputs before anything can fail. Thread rule: any thread. NCCL
// calls connect and regMrSym on all ranks; they block until all ranks have called.
#include "net_plugin/tables.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "net_plugin/abi/one_sided.h"
#include "net_plugin/communicator.h"
#include "net_plugin/log.h"
#include "transport/base/return_if_error.h"
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

// Whether the user has named Pacecar. NCCL looks for these tables in every net plugin. NCCL's own
// RDMA plugin signals by the NIC's atomics, while ours copies each signal. So ours needs a request.
bool is_named() {
  for (const char* const variable : {"NCCL_RMA_PLUGIN", "NCCL_GIN_PLUGIN"}) {
    const char* const named = std::getenv(variable);
    if (named != nullptr && std::strstr(named, "pacecar") != nullptr) return true;
  }
  return false;
}

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

// By device_type NCCL distinguishes proxy plugins from those whose operations a GPU starts.
template <typename Properties>
NcclResult get_properties(int device, Properties* properties) {
  const NcclResult result = plugin::get_properties(device, properties);
  if (result == NcclResult::kSuccess) properties->device_type = nccl::kDeviceTypeGinProxy;
  return result;
}

// That a signal makes the puts of all other ranks visible, too, has not been tried on a GPU.
NcclResult get_rma_properties(void* /*collective*/, nccl::RmaPropertiesV16* properties) noexcept {
  properties->any_signal_flushes_all_puts = false;
  return NcclResult::kSuccess;
}

// NCCL may pass the net plugin's context, so the listener's own is used.
template <typename... Connection>
NcclResult connect(void* /*context*/, void* handles[], int ranks, int rank,
                   Connection... /*connections*/, Connection... /*queue_depth*/, void* listen_comm,
                   void** collective) noexcept {
  *collective = nullptr;
  return guarded("connect", [&]() -> Result<void> {
    if (listen_comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
      return fail(ErrorCode::kInternal, "it was called for rank " + std::to_string(rank) + " of " +
                                            std::to_string(ranks) + ", or without a listener");
    }
    const auto& listening = *static_cast<ListenComm*>(listen_comm);
    std::vector<Handle> copies(static_cast<size_t>(ranks));
    for (size_t i = 0; i < copies.size(); ++i) {
      std::memcpy(copies[i].bytes.data(), handles[i], Handle::kBytes);
    }
    ASSIGN_OR_RETURN(auto group,
                     rma::Group::join(listening.context, listening.nic, *listening.listener, copies,
                                      static_cast<size_t>(rank), listening.weight, log_sink()));
    *collective = new Collective{listening.context, std::move(group)};
    return {};
  });
}

// `body` takes the communicator's group.
template <typename Body>
NcclResult in_group(std::string_view call, void* collective, const Body& body) noexcept {
  return guarded(call, [&]() -> Result<void> {
    if (collective == nullptr) {
      return fail(ErrorCode::kInternal, "it was called without a communicator");
    }
    return body(*static_cast<Collective*>(collective)->group);
  });
}

// GIN has a second handle of a window, for the GPU: here both handles are equal.
template <typename... GinWindow>
NcclResult share_dmabuf(void* collective, void* data, size_t size, int type, uint64_t offset,
                        int fd, uint64_t /*flags*/, void** window,
                        GinWindow... gin_window) noexcept {
  *window = nullptr;
  const NcclResult result =
      in_group("register a window", collective, [&](rma::Group& group) -> Result<void> {
        ASSIGN_OR_RETURN(const MemoryRange range, memory_range(data, size, type, offset, fd));
        ASSIGN_OR_RETURN(*window, group.share(range));
        return {};
      });
  ((*gin_window = *window), ...);
  return result;
}

template <typename... GinWindow>
NcclResult share_memory(void* collective, void* data, size_t size, int type, uint64_t flags,
                        void** window, GinWindow... gin_window) noexcept {
  return share_dmabuf(collective, data, size, type, 0, kNoFile, flags, window, gin_window...);
}

NcclResult unshare(void* collective, void* window) noexcept {
  return in_group("deregMrSym", collective, [&](rma::Group& group) -> Result<void> {
    if (window == nullptr) return fail(ErrorCode::kInternal, "it was called without a window");
    group.unshare(static_cast<rma::SharedWindow*>(window));
    return {};
  });
}

NcclResult test(void* collective, void* request, int* done) noexcept {
  *done = 0;
  return guarded([&] {
    if (collective == nullptr || request == nullptr) {
      return misuse("test was called without a request");
    }
    const Result<bool> tested =
        static_cast<Collective*>(collective)->group->test(static_cast<rma::Operation*>(request));
    if (!tested) return data_result(tested.error().code);  // logged once, or its rank has left
    *done = *tested ? 1 : 0;
    return NcclResult::kSuccess;
  });
}

// --- contexts, from version 13 on ---

template <typename Config>
NcclResult create_context(void* collective, Config* config, void** context) noexcept {
  *context = nullptr;
  return guarded("createContext", [&]() -> Result<void> {
    if (collective == nullptr || config->contexts < 1) {
      return fail(ErrorCode::kInternal, "it was called for " + std::to_string(config->contexts) +
                                            " contexts, or without a communicator");
    }
    auto& owner = *static_cast<Collective*>(collective);
    check_traffic_class(*owner.context, checked_traffic_class(config->traffic_class));
    *context = new PutContext{&owner, config->contexts};
    return {};
  });
}

NcclResult create_gin_context(void* collective, nccl::GinConfigV13* config, void** context,
                              nccl::DeviceHandle** device_handle) noexcept {
  if (device_handle != nullptr) *device_handle = nullptr;
  return create_context(collective, config, context);
}

// --- operations ---

// An operation's communicator: GIN 11 and 12 pass it, later ones context and number. nullptr: none.
void* communicator_of(void* collective) { return collective; }
void* communicator_of(void* context, int number) {
  const auto* const put_context = static_cast<PutContext*>(context);
  const bool there = put_context != nullptr && number >= 0 && number < put_context->contexts;
  return there ? put_context->collective : nullptr;
}

// A place in a window. Its offset counts within each rank's part.
rma::Location at(void* window, uint64_t offset) {
  return {static_cast<const rma::SharedWindow*>(window), offset};
}

Result<rma::Signal> signal_at(rma::Location word, uint64_t value, uint32_t operation) {
  if (operation != nccl::kSignalIncrement && operation != nccl::kSignalAdd) {
    return fail(ErrorCode::kInvalidArgument, "a signal of operation " + std::to_string(operation) +
                                                 ": it increments (1) or adds (2)");
  }
  return rma::Signal{.word = word, .value = operation == nccl::kSignalIncrement ? 1 : value};
}

// `begin` starts an operation in the group.
template <typename Begin>
NcclResult start(std::string_view call, void* collective, void** request,
                 const Begin& begin) noexcept {
  *request = nullptr;
  return in_group(call, collective, [&](rma::Group& group) -> Result<void> {
    ASSIGN_OR_RETURN(*request, begin(group));
    return {};
  });
}

// `Number`: of a context's queue. Ignores `Trailing` arguments: the number of a connection, as all
// have the group's order; whether a signal is strong; flags.
template <typename... Number>
struct Operations {
  template <typename... Trailing>
  static NcclResult put(void* owner, Number... number, uint64_t source_offset, void* source,
                        size_t size, uint64_t offset, void* window, uint32_t rank,
                        Trailing... /*trailing*/, void** request) {
    return start("iput", communicator_of(owner, number...), request, [&](rma::Group& group) {
      return group.put(rank, at(source, source_offset), size, at(window, offset), std::nullopt);
    });
  }

  template <typename... Trailing>
  static NcclResult put_signal(void* owner, Number... number, uint64_t source_offset, void* source,
                               size_t size, uint64_t offset, void* window, uint32_t rank,
                               uint64_t signal_offset, void* signal_window, uint64_t value,
                               uint32_t operation, Trailing... /*trailing*/, void** request) {
    const auto begin = [&](rma::Group& group) -> Result<rma::Operation*> {
      ASSIGN_OR_RETURN(const rma::Signal signal,
                       signal_at(at(signal_window, signal_offset), value, operation));
      return group.put(rank, at(source, source_offset), size, at(window, offset), signal);
    };
    return start("iputSignal", communicator_of(owner, number...), request, begin);
  }

  template <typename... Flags>
  static NcclResult get(void* owner, Number... number, uint64_t offset, void* window, size_t size,
                        uint64_t local_offset, void* local, uint32_t rank, Flags... /*flags*/,
                        void** request) {
    return start("iget", communicator_of(owner, number...), request, [&](rma::Group& group) {
      return group.get(rank, at(window, offset), size, at(local, local_offset));
    });
  }

  static NcclResult flush(void* owner, Number... number, void* /*window*/, uint32_t rank,
                          void** request) {
    return start("iflush", communicator_of(owner, number...), request,
                 [&](rma::Group& group) { return group.flush(rank); });
  }

  // Calls without a number concern the whole communicator.
  static NcclResult progress(void* owner) {
    return in_group("progress", communicator_of(owner, Number{}...),
                    [](rma::Group& group) -> Result<void> {
                      group.progress();
                      return {};
                    });
  }

  static NcclResult last_error(void* owner, bool* has_error) {
    *has_error = false;
    return in_group("queryLastError", communicator_of(owner, Number{}...),
                    [&](rma::Group& group) -> Result<void> {
                      *has_error = group.failure().has_value();
                      return {};
                    });
  }
};
using OfContext = Operations<int>;

// --- tables ---

template <typename Table, typename Calls, typename... Connection>
constexpr Table common_table() {
  Table table{};
  table.name = "Pacecar";
  table.init = init;
  table.devices = devices;
  table.getProperties = get_properties;
  table.listen = listen;
  table.connect = connect<Connection...>;
  table.deregMrSym = unshare;
  table.closeColl = destroy<Collective>;
  table.closeListen = close_listen;
  table.test = test;
  table.queryLastError = Calls::last_error;
  table.finalize = finalize;
  if constexpr (requires { table.ginProgress; }) {
    table.regMrSym = share_memory<void**>;
    table.regMrSymDmaBuf = share_dmabuf<void**>;
    table.ginProgress = Calls::progress;
  }
  return table;
}

// GIN 11 and 12. The functions of contexts are left out: in proxy mode NCCL makes contexts itself,
// and passes the communicator in their place.
template <typename... Connection>
constexpr nccl::GinV11V12<Connection...> gin_table() {
  auto table = common_table<nccl::GinV11V12<Connection...>, Operations<>, Connection...>();
  table.finalize = finalize_for_good;
  table.iput = Operations<>::put<Connection...>;
  table.iputSignal = Operations<>::put_signal<Connection...>;
  return table;
}

constexpr nccl::GinV13 gin_v13() {
  auto table = common_table<nccl::GinV13, OfContext>();
  table.createContext = create_gin_context;
  table.destroyContext = destroy<PutContext>;
  table.iput = OfContext::put<>;
  table.iputSignal = OfContext::put_signal<>;
  table.iget = OfContext::get<>;
  table.iflush = OfContext::flush;
  return table;
}

template <typename Table, typename... Flags>
constexpr Table rma_table() {
  auto table = common_table<Table, OfContext>();
  if constexpr (std::is_same_v<Table, nccl::RmaV16>) table.getRmaProperties = get_rma_properties;
  table.createContext = create_context;
  table.destroyContext = destroy<PutContext>;
  table.regMrSym = share_memory<>;
  table.regMrSymDmaBuf = share_dmabuf<>;
  table.iput = OfContext::put<Flags...>;
  table.iputSignal = OfContext::put_signal<bool, Flags...>;
  table.iget = OfContext::get<Flags...>;
  table.iflush = OfContext::flush;
  table.rmaProgress = OfContext::progress;
  return table;
}

}  // namespace

extern "C" {

#define PACECAR_ONE_SIDED_TABLE(name, table) \
  [[gnu::visibility("default")]] extern constexpr auto name = table;

PACECAR_ONE_SIDED_TABLE(ncclGinPlugin_v11, gin_table<>())
PACECAR_ONE_SIDED_TABLE(ncclGinPlugin_v12, gin_table<int>())
PACECAR_ONE_SIDED_TABLE(ncclGinPlugin_v13, gin_v13())
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v13, gin_v13())
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v14, rma_table<nccl::RmaV14>())
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v15, (rma_table<nccl::RmaV15, uint32_t>()))
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v16, (rma_table<nccl::RmaV16, uint32_t>()))
#undef PACECAR_ONE_SIDED_TABLE
}

}  // namespace pacecar::plugin::one_sided
