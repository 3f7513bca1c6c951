#include "tests/support/any_profiler.h"

#include <dlfcn.h>

#include <string>

namespace pacecar::nccl {
namespace {

// Version 4: the number of the communicator comes later, and events have no group of calls.
const ProfilerV4* table_v4 = nullptr;

NcclResult init_v4(void** context, uint64_t comm_id, int* activation_mask, const char* name,
                   int nodes, int ranks, int rank, Logger logger) {
  return table_v4->init(context, activation_mask, name, comm_id, nodes, ranks, rank, logger);
}

NcclResult start_v4(void* context, void** handle, ProfileEventV6* event) {
  ProfileEventV4 old{};
  old.type = static_cast<uint8_t>(event->type);
  old.parent = event->parent;
  old.rank = event->rank;
  switch (static_cast<int>(event->type)) {
    case kProfileCollective: old.collective = event->collective; break;
    case kProfilePointToPoint: old.point_to_point = event->point_to_point; break;
    case kProfileProxyOp: old.proxy_op = event->proxy_op; break;
    case kProfileProxyStep: old.proxy_step = event->proxy_step; break;
    default: break;
  }
  return table_v4->startEvent(context, handle, &old);
}

}  // namespace

ProfilerV6 find_profiler(void* library, int version) {
  const std::string symbol = "ncclProfiler_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return {};
  if (version > 4) return *static_cast<const ProfilerV6*>(table);
  table_v4 = static_cast<const ProfilerV4*>(table);
  return {table_v4->name,    init_v4, start_v4, table_v4->stopEvent, table_v4->recordEventState,
          table_v4->finalize};
}

}  // namespace pacecar::nccl
