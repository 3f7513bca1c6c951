// Before version 11 NCCL says nothing of its communicators and finalizes none. So there is one for
// the whole process: from the first init to the process's end.
//
// Thread rule: any thread.
#pragma once

#include "net_plugin/abi/types.h"

namespace pacecar::plugin {

nccl::NcclResult init_process(nccl::Logger logger) noexcept;
// What entry points take as their context; nullptr before init_process.
void* process_context() noexcept;
// What a connection asks for: told when it is not what this process's packets have.
void check_traffic_class(const nccl::CommConfig* config) noexcept;

}  // namespace pacecar::plugin
