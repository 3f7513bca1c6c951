// Versions 6 to 10 of the table, NCCL 2.13 to 2.27: one communicator for the process.
#include <array>

#include "net_plugin/abi/tables.h"
#include "net_plugin/common_table.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/process_communicator.h"
#include "net_plugin/profiler/net_events.h"

namespace pacecar::plugin {
namespace {

using nccl::DeviceHandle;
using nccl::NcclResult;

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

constexpr nccl::NetV6 table_v6() {
  auto net = common_table<nccl::NetV6>();
  net.init = init_process;
  net.listen = listen_v6;
  net.connect = connect_v6;
  net.accept = accept_v6;
  net.regMr = register_v6;
  net.isend = isend_v6;
  net.irecv = irecv_v6;
  return net;
}

// And of version 8, which registers more than 2 GiB.
template <typename Net>
constexpr Net table_v7(auto registering) {
  Net net = common_table<Net>();
  net.regMr = registering;
  net.init = init_process;
  net.listen = listen_v6;
  net.connect = connect_v7;
  net.accept = accept;
  net.isend = isend_v6;
  net.irecv = irecv_v6;
  return net;
}

constexpr nccl::NetV9 table_v9() {
  auto net = common_table<nccl::NetV9>();
  net.init = init_process;
  net.listen = listen_v6;
  net.connect = connect_v7;
  net.accept = accept;
  net.regMr = register_memory;
  net.isend = isend_v9;
  net.irecv = irecv_v9;
  return net;
}

constexpr nccl::NetV10 table_v10() {
  auto net = common_table<nccl::NetV10>();
  net.init = init_v10;
  net.listen = listen_v6;
  net.connect = connect_v10;
  net.accept = accept;
  net.regMr = register_memory;
  net.isend = isend;
  net.irecv = irecv;
  return net;
}

}  // namespace
}  // namespace pacecar::plugin

extern "C" {

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV6 ncclNetPlugin_v6 =
    pacecar::plugin::table_v6();
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV7 ncclNetPlugin_v7 =
    pacecar::plugin::table_v7<pacecar::nccl::NetV7>(pacecar::plugin::register_v6);
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV8 ncclNetPlugin_v8 =
    pacecar::plugin::table_v7<pacecar::nccl::NetV8>(pacecar::plugin::register_memory);
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV9 ncclNetPlugin_v9 =
    pacecar::plugin::table_v9();
[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV10 ncclNetPlugin_v10 =
    pacecar::plugin::table_v10();
}
