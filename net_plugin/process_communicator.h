// Before version 11 NCCL passes no communicator and never finalizes. So the whole process has one,
// from the first init to its end.
//
// Thread rule: any thread.
#pragma once

#include "net_plugin/abi/types.h"

namespace pacecar::plugin {

nccl::NcclResult init_process(nccl::Logger logger) noexcept;
// The context of the entry points; nullptr before init_process.
void* process_context() noexcept;
// Logs if a connection requests another traffic class than this process's packets have.
void check_traffic_class(const nccl::CommConfig* config) noexcept;

}  // namespace pacecar::plugin
