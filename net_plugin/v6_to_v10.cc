// Versions 6 to 10 of the table, NCCL 2.13 to 2.27: one communicator for the process.
#include <array>

#include "net_plugin/abi/tables.h"
#include "net_plugin/device_properties.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/process_communicator.h"

namespace pacecar::plugin {
namespace {

using nccl::DeviceHandle;
using nccl::NcclResult;

NcclResult init_v10(nccl::Logger logger, nccl::ProfilerCallback /*profiler*/) {
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

// Sizes of NCCL's are never negative; one that is becomes larger than any memory, and is refused.
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

}  // namespace
}  // namespace pacecar::plugin

// Absent on purpose, here and in the later ones: dma-buf registration, device offload and virtual
// devices, all of which the properties say we do not have; NCCL asks before it calls.
extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV6 ncclNetPlugin_v6 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_process,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties,
    .listen = pacecar::plugin::listen_v6,
    .connect = pacecar::plugin::connect_v6,
    .accept = pacecar::plugin::accept_v6,
    .regMr = pacecar::plugin::register_v6,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend_v6,
    .irecv = pacecar::plugin::irecv_v6,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
};

extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV7 ncclNetPlugin_v7 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_process,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties,
    .listen = pacecar::plugin::listen_v6,
    .connect = pacecar::plugin::connect_v7,
    .accept = pacecar::plugin::accept,
    .regMr = pacecar::plugin::register_v6,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend_v6,
    .irecv = pacecar::plugin::irecv_v6,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
};

extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV8 ncclNetPlugin_v8 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_process,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties,
    .listen = pacecar::plugin::listen_v6,
    .connect = pacecar::plugin::connect_v7,
    .accept = pacecar::plugin::accept,
    .regMr = pacecar::plugin::register_memory,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend_v6,
    .irecv = pacecar::plugin::irecv_v6,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
};

extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV9 ncclNetPlugin_v9 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_process,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties,
    .listen = pacecar::plugin::listen_v6,
    .connect = pacecar::plugin::connect_v7,
    .accept = pacecar::plugin::accept,
    .regMr = pacecar::plugin::register_memory,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend_v9,
    .irecv = pacecar::plugin::irecv_v9,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
};

extern "C" [[gnu::visibility("default")]] const pacecar::nccl::NetV10 ncclNetPlugin_v10 = {
    .name = "Pacecar",
    .init = pacecar::plugin::init_v10,
    .devices = pacecar::plugin::devices,
    .getProperties = pacecar::plugin::get_properties,
    .listen = pacecar::plugin::listen_v6,
    .connect = pacecar::plugin::connect_v10,
    .accept = pacecar::plugin::accept,
    .regMr = pacecar::plugin::register_memory,
    .deregMr = pacecar::plugin::deregister_memory,
    .isend = pacecar::plugin::isend,
    .irecv = pacecar::plugin::irecv,
    .iflush = pacecar::plugin::iflush,
    .test = pacecar::plugin::test,
    .closeSend = pacecar::plugin::close_connection,
    .closeRecv = pacecar::plugin::close_connection,
    .closeListen = pacecar::plugin::close_listen,
};
