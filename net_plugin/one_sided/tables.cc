// The tables for one-sided operations in proxy mode, GIN 11 to 13 and RMA 13 to 15, and the
// differences in their functions' arguments. Weak signals are treated as strong, and puts are
// posted at once, whatever the flags announce.
#include "net_plugin/abi/one_sided.h"
#include "net_plugin/device_properties.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/one_sided/calls.h"

namespace pacecar::plugin::one_sided {
namespace {

using nccl::NcclResult;

// By device_type NCCL distinguishes proxy plugins from those whose operations a GPU starts.
template <typename Properties>
NcclResult get_properties(int device, Properties* properties) {
  const NcclResult result = plugin::get_properties(device, properties);
  if (result != NcclResult::kSuccess) return result;
  properties->device_type = nccl::kDeviceTypeGinProxy;
  return NcclResult::kSuccess;
}

// GIN has a second handle of a window, for the GPU: here it is the same.
NcclResult share_memory_gin(void* collective, void* data, size_t size, int type, uint64_t flags,
                            void** window, void** gin_window) {
  const NcclResult result = share_memory(collective, data, size, type, flags, window);
  *gin_window = *window;
  return result;
}

NcclResult share_dmabuf_gin(void* collective, void* data, size_t size, int type, uint64_t offset,
                            int fd, uint64_t flags, void** window, void** gin_window) {
  const NcclResult result = share_dmabuf(collective, data, size, type, offset, fd, flags, window);
  *gin_window = *window;
  return result;
}

template <typename Table>
constexpr Table common_table() {
  Table table{};
  table.name = "Pacecar";
  table.init = init;
  table.devices = devices;
  table.getProperties = get_properties;
  table.listen = listen;
  table.deregMrSym = unshare;
  table.closeColl = close_collective;
  table.closeListen = close_listen;
  table.test = test;
  table.finalize = finalize;
  return table;
}

// The communicator of an operation: GIN 11 and 12 pass it, later versions a context and a number.
void* communicator_of(void* collective) { return collective; }
void* communicator_of(void* context, int number) { return collective_of(context, number); }

// Ignores `Trailing` arguments: the number of a connection, as all have the group's order; whether
// a signal is strong; flags.
template <typename... Number>
struct Operations {
  template <typename... Trailing>
  static NcclResult put(void* owner, Number... number, uint64_t source_offset, void* source,
                        size_t size, uint64_t offset, void* window, uint32_t rank,
                        Trailing... /*trailing*/, void** request) {
    return one_sided::put(communicator_of(owner, number...), {source, source_offset}, size,
                          {window, offset}, rank, nullptr, request);
  }

  template <typename... Trailing>
  static NcclResult put_signal(void* owner, Number... number, uint64_t source_offset, void* source,
                               size_t size, uint64_t offset, void* window, uint32_t rank,
                               uint64_t signal_offset, void* signal_window, uint64_t value,
                               uint32_t operation, Trailing... /*trailing*/, void** request) {
    const SignalCall signal{{signal_window, signal_offset}, value, operation};
    return one_sided::put(communicator_of(owner, number...), {source, source_offset}, size,
                          {window, offset}, rank, &signal, request);
  }
};
using Puts = Operations<int>;  // of a context

// --- GIN 11 and 12: operations of a communicator, without contexts ---

template <typename... Connection>
NcclResult connect_gin(void* context, void* handles[], int ranks, int rank,
                       Connection... /*connections*/, Connection... /*queue_depth*/,
                       void* listen_comm, void** collective) {
  return connect(context, handles, ranks, rank, listen_comm, collective);
}

// The functions of contexts are left out: in proxy mode NCCL makes contexts itself, and passes the
// communicator in their place.
template <typename... Connection>
constexpr nccl::GinV11V12<Connection...> gin_table() {
  auto table = common_table<nccl::GinV11V12<Connection...>>();
  table.connect = connect_gin<Connection...>;
  table.regMrSym = share_memory_gin;
  table.regMrSymDmaBuf = share_dmabuf_gin;
  table.iput = Operations<>::put<Connection...>;
  table.iputSignal = Operations<>::put_signal<Connection...>;
  table.ginProgress = progress;
  table.queryLastError = last_error;
  return table;
}

// --- 13 and later: operations of a context ---

NcclResult create_context_v13(void* collective, nccl::GinConfigV13* config, void** context,
                              nccl::DeviceHandle** device_handle) {
  if (device_handle != nullptr) *device_handle = nullptr;
  return create_context(collective, config->contexts, config->traffic_class, context);
}

NcclResult create_context_v14(void* collective, nccl::RmaConfigV14* config, void** context) {
  return create_context(collective, config->contexts, config->traffic_class, context);
}

template <typename... Flags>
NcclResult get_v13(void* context, int number, uint64_t offset, void* window, size_t size,
                   uint64_t local_offset, void* local, uint32_t rank, Flags... /*flags*/,
                   void** request) {
  return get(collective_of(context, number), {window, offset}, size, {local, local_offset}, rank,
             request);
}

NcclResult flush_v13(void* context, int number, void* /*window*/, uint32_t rank, void** request) {
  return flush(collective_of(context, number), rank, request);
}

NcclResult progress_v13(void* context) { return progress(collective_of(context, 0)); }

NcclResult last_error_v13(void* context, bool* has_error) {
  return last_error(collective_of(context, 0), has_error);
}

template <typename Table>
constexpr Table context_table() {
  Table table = common_table<Table>();
  table.connect = connect;
  table.destroyContext = destroy_context;
  table.iflush = flush_v13;
  table.queryLastError = last_error_v13;
  return table;
}

constexpr nccl::GinV13 gin_v13() {
  auto table = context_table<nccl::GinV13>();
  table.createContext = create_context_v13;
  table.regMrSym = share_memory_gin;
  table.regMrSymDmaBuf = share_dmabuf_gin;
  table.iput = Puts::put<>;
  table.iputSignal = Puts::put_signal<>;
  table.iget = get_v13<>;
  table.ginProgress = progress_v13;
  return table;
}

template <typename... Flags>
constexpr nccl::RmaV14V15<Flags...> rma_table() {
  auto table = context_table<nccl::RmaV14V15<Flags...>>();
  table.createContext = create_context_v14;
  table.regMrSym = share_memory;
  table.regMrSymDmaBuf = share_dmabuf;
  table.iput = Puts::put<Flags...>;
  table.iputSignal = Puts::put_signal<bool, Flags...>;
  table.iget = get_v13<Flags...>;
  table.rmaProgress = progress_v13;
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
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v14, rma_table<>())
PACECAR_ONE_SIDED_TABLE(ncclRmaPlugin_v15, rma_table<uint32_t>())
#undef PACECAR_ONE_SIDED_TABLE
}

}  // namespace pacecar::plugin::one_sided
