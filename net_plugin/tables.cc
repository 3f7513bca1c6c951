// The tables of functions by which NCCL calls the net plugin, one per version, and the differences
// in their functions' arguments.
#include "net_plugin/abi/tables.h"

#include <array>
#include <mutex>

#include "net_plugin/communicator.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/profiler/net_events.h"

namespace pacecar::plugin {
namespace {

using nccl::DeviceHandle;
using nccl::NcclResult;

// --- before version 11 ---

// NCCL passes no communicator here and finalizes none. So the process has one, from the first init
// to its end. Neither is ever destroyed: NCCL's threads may still call while the process ends.
constinit std::mutex g_mutex;  // guards g_context
constinit void* g_context = nullptr;

NcclResult init_v6(nccl::Logger logger) noexcept {
  const std::lock_guard lock(g_mutex);
  if (g_context != nullptr) return NcclResult::kSuccess;
  return init(&g_context, logger, nccl::kUndefined);
}

// The context for entry points; nullptr before init.
void* process_context() noexcept {
  const std::lock_guard lock(g_mutex);
  return g_context;
}

NcclResult init_v10(nccl::Logger logger, nccl::ProfilerCallback profiler) {
  profiler::set_net_event_callback(profiler);
  return init_v6(logger);
}

NcclResult listen_v6(int device, void* handle, void** listen_comm) {
  return listen(process_context(), device, handle, listen_comm);
}

NcclResult connect_v7(int device, void* handle, void** send_comm, DeviceHandle** device_handle) {
  return connect(process_context(), device, handle, send_comm, device_handle);
}

NcclResult connect_v6(int device, void* handle, void** send_comm) {
  return connect_v7(device, handle, send_comm, nullptr);
}

NcclResult connect_v10(int device, nccl::CommConfig* config, void* handle, void** send_comm,
                       DeviceHandle** device_handle) {
  const NcclResult result = connect_v7(device, handle, send_comm, device_handle);
  if (*send_comm != nullptr && config != nullptr) {
    check_traffic_class(static_cast<Comm*>(*send_comm)->context(),
                        checked_traffic_class(config->traffic_class));
  }
  return result;
}

NcclResult accept_v6(void* listen_comm, void** receive_comm) {
  return accept(listen_comm, receive_comm, nullptr);
}

// NCCL's sizes are never negative; a negative one becomes larger than any memory, and is refused.
NcclResult register_v6(void* comm, void* data, int size, int type, void** memory) {
  return register_memory(comm, data, static_cast<size_t>(size), type, memory);
}

NcclResult isend_v9(void* send_comm, void* data, size_t size, int tag, void* memory,
                    void** request) {
  return isend(send_comm, data, size, tag, memory, nullptr, request);
}

NcclResult isend_v6(void* send_comm, void* data, int size, int tag, void* memory, void** request) {
  return isend_v9(send_comm, data, static_cast<size_t>(size), tag, memory, request);
}

NcclResult irecv_v9(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                    void** memories, void** request) {
  return irecv(receive_comm, count, data, sizes, tags, memories, nullptr, request);
}

NcclResult irecv_v6(void* receive_comm, int count, void** data, int* sizes, int* tags,
                    void** memories, void** request) {
  std::array<size_t, kMaxReceiveBuffers> wide{};
  for (int i = 0; i < count && i < kMaxReceiveBuffers; ++i) {
    wide[static_cast<size_t>(i)] = static_cast<size_t>(sizes[i]);
  }
  return irecv_v9(receive_comm, count, data, wide.data(), tags, memories, request);
}

// --- from version 11 on: a context per communicator ---

NcclResult init_v11(void** context, uint64_t /*comm_id*/, nccl::CommConfig* config,
                    nccl::Logger logger, nccl::ProfilerCallback profiler) {
  profiler::set_net_event_callback(profiler);
  return init(context, logger, config == nullptr ? nccl::kUndefined : config->traffic_class);
}

// Device offload is left out: the properties say that there is none, and NCCL asks before it calls.
template <typename Net>
constexpr Net table(auto starting, auto listening, auto connecting, auto accepting,
                    auto registering, auto sending, auto receiving) {
  Net net{};
  net.name = "Pacecar";
  net.init = starting;
  net.devices = devices;
  net.getProperties = get_properties;
  net.listen = listening;
  net.connect = connecting;
  net.accept = accepting;
  net.regMr = registering;
  net.regMrDmaBuf = register_dmabuf;
  net.deregMr = deregister_memory;
  net.isend = sending;
  net.irecv = receiving;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = close_connection;
  net.closeRecv = close_connection;
  net.closeListen = close_listen;
  if constexpr (requires { net.makeVDevice; }) net.makeVDevice = make_virtual_device;
  if constexpr (requires { net.setNetAttr; }) {
    net.finalize = finalize;
    net.setNetAttr = set_attributes;
  }
  return net;
}

}  // namespace

extern "C" {

#define PACECAR_NET_TABLE(version, ...)                                                          \
  [[gnu::visibility("default")]] extern constexpr nccl::NetV##version ncclNetPlugin_v##version = \
      table<nccl::NetV##version>(__VA_ARGS__);

PACECAR_NET_TABLE(6, init_v6, listen_v6, connect_v6, accept_v6, register_v6, isend_v6, irecv_v6)
PACECAR_NET_TABLE(7, init_v6, listen_v6, connect_v7, accept, register_v6, isend_v6, irecv_v6)
PACECAR_NET_TABLE(8, init_v6, listen_v6, connect_v7, accept, register_memory, isend_v6, irecv_v6)
PACECAR_NET_TABLE(9, init_v6, listen_v6, connect_v7, accept, register_memory, isend_v9, irecv_v9)
PACECAR_NET_TABLE(10, init_v10, listen_v6, connect_v10, accept, register_memory, isend, irecv)
PACECAR_NET_TABLE(11, init_v11, listen, connect, accept, register_memory, isend, irecv)
PACECAR_NET_TABLE(12, init_v11, listen, connect, accept, register_memory, isend, irecv)
#undef PACECAR_NET_TABLE
}

}  // namespace pacecar::plugin
