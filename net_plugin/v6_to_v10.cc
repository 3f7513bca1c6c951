// Versions 6 to 10 of the table, NCCL 2.13 to 2.27: one communicator for the process.
#include <array>
#include <mutex>

#include "net_plugin/abi/tables.h"
#include "net_plugin/common_table.h"
#include "net_plugin/communicator.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/profiler/net_events.h"

namespace pacecar::plugin {
namespace {

using nccl::DeviceHandle;
using nccl::NcclResult;

// NCCL says nothing of its communicators here and finalizes none. So there is one for the whole
// process: from the first init to the process's end.
struct Holder {
  std::mutex mutex;
  void* context = nullptr;
};

// Never destroyed: NCCL's threads may still call while the process ends.
Holder& holder() {
  static Holder* const instance = new Holder;
  return *instance;
}

NcclResult init_process(nccl::Logger logger) noexcept {
  Holder& held = holder();
  const std::lock_guard lock(held.mutex);
  if (held.context != nullptr) return NcclResult::kSuccess;
  return init(&held.context, logger, nccl::kUndefined);
}

// What entry points take as their context; nullptr before init_process.
void* process_context() noexcept {
  Holder& held = holder();
  const std::lock_guard lock(held.mutex);
  return held.context;
}

// What a connection asks for: told when it is not what this process's packets have.
void check_traffic_class(const nccl::CommConfig* config) noexcept {
  const auto* const communicator = static_cast<const Communicator*>(process_context());
  if (config == nullptr || communicator == nullptr) return;
  if (const auto wanted = checked_traffic_class(config->traffic_class)) {
    communicator->check_traffic_class(*wanted);
  }
}

NcclResult init_v10(nccl::Logger logger, nccl::ProfilerCallback profiler) {
  profiler::set_net_event_callback(profiler);
  return init_process(logger);
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
  if (*send_comm != nullptr) check_traffic_class(config);
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

// What the versions differ in.
template <typename Net>
constexpr Net table_of(auto starting, auto connecting, auto accepting, auto registering,
                       auto sending, auto receiving) {
  Net net = common_table<Net>();
  net.init = starting;
  net.listen = listen_v6;
  net.connect = connecting;
  net.accept = accepting;
  net.regMr = registering;
  net.isend = sending;
  net.irecv = receiving;
  return net;
}

constexpr auto table_v6 =
    table_of<nccl::NetV6>(init_process, connect_v6, accept_v6, register_v6, isend_v6, irecv_v6);
constexpr auto table_v7 =
    table_of<nccl::NetV7>(init_process, connect_v7, accept, register_v6, isend_v6, irecv_v6);
constexpr auto table_v8 =
    table_of<nccl::NetV8>(init_process, connect_v7, accept, register_memory, isend_v6, irecv_v6);
constexpr auto table_v9 =
    table_of<nccl::NetV9>(init_process, connect_v7, accept, register_memory, isend_v9, irecv_v9);
constexpr auto table_v10 =
    table_of<nccl::NetV10>(init_v10, connect_v10, accept, register_memory, isend, irecv);

}  // namespace
}  // namespace pacecar::plugin

extern "C" {

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV6 ncclNetPlugin_v6 =
    pacecar::plugin::table_v6;
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV7 ncclNetPlugin_v7 =
    pacecar::plugin::table_v7;
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV8 ncclNetPlugin_v8 =
    pacecar::plugin::table_v8;
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV9 ncclNetPlugin_v9 =
    pacecar::plugin::table_v9;
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV10 ncclNetPlugin_v10 =
    pacecar::plugin::table_v10;
}
