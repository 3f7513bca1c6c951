// Versions 11 and 12 of the table, NCCL 2.28 and later: a context per communicator.
#include "net_plugin/abi/tables.h"
#include "net_plugin/device_properties.h"
#include "net_plugin/entry_points.h"

namespace pacecar::plugin {
namespace {

using nccl::NcclResult;

NcclResult init_v11(void** context, uint64_t /*comm_id*/, nccl::CommConfig* config,
                    nccl::Logger logger, nccl::ProfilerCallback /*profiler*/) {
  return init(context, logger, config == nullptr ? nccl::kUndefined : config->traffic_class);
}

NcclResult set_attributes_v11(void* context, nccl::NetAttributes* attributes) {
  return set_attributes(context, attributes->receive);
}

// The two differ in their properties, which get_properties fills.
template <typename Net>
constexpr Net kTable = {
    .name = "Pacecar",
    .init = init_v11,
    .devices = devices,
    .getProperties = get_properties,
    .listen = listen,
    .connect = connect,
    .accept = accept,
    .regMr = register_memory,
    .deregMr = deregister_memory,
    .isend = isend,
    .irecv = irecv,
    .iflush = iflush,
    .test = test,
    .closeSend = close_connection,
    .closeRecv = close_connection,
    .closeListen = close_listen,
    .finalize = finalize,
    .setNetAttr = set_attributes_v11,
};

}  // namespace
}  // namespace pacecar::plugin

extern "C" {

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV11 ncclNetPlugin_v11 =
    pacecar::plugin::kTable<pacecar::nccl::NetV11>;

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV12 ncclNetPlugin_v12 =
    pacecar::plugin::kTable<pacecar::nccl::NetV12>;
}
