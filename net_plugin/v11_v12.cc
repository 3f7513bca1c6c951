// Versions 11 and 12 of the table, NCCL 2.28 and later: a context per communicator.
#include "net_plugin/abi/tables.h"
#include "net_plugin/common_table.h"
#include "net_plugin/entry_points.h"
#include "net_plugin/profiler/net_events.h"

namespace pacecar::plugin {
namespace {

using nccl::NcclResult;

NcclResult init_v11(void** context, uint64_t /*comm_id*/, nccl::CommConfig* config,
                    nccl::Logger logger, nccl::ProfilerCallback profiler) {
  profiler::set_net_event_callback(profiler);
  return init(context, logger, config == nullptr ? nccl::kUndefined : config->traffic_class);
}

NcclResult set_attributes_v11(void* context, nccl::NetAttributes* attributes) {
  return set_attributes(context, attributes->receive);
}

template <typename Net>
constexpr Net table_v11() {
  Net net = common_table<Net>();
  net.init = init_v11;
  net.listen = listen;
  net.connect = connect;
  net.accept = accept;
  net.regMr = register_memory;
  net.isend = isend;
  net.irecv = irecv;
  net.finalize = finalize;
  net.setNetAttr = set_attributes_v11;
  return net;
}

}  // namespace
}  // namespace pacecar::plugin

extern "C" {

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV11 ncclNetPlugin_v11 =
    pacecar::plugin::table_v11<pacecar::nccl::NetV11>();

[[gnu::visibility("default")]] extern constexpr pacecar::nccl::NetV12 ncclNetPlugin_v12 =
    pacecar::plugin::table_v11<pacecar::nccl::NetV12>();
}
