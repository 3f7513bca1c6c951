// Security of NICs without room for tags: standard RoCE, InfiniBand, libfabric. Thread rule: any.
#pragma once

#include <string_view>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/base/result.h"

namespace pacecar {

// Logs that packets carry no tags, unless PACECAR_SECURITY=off. `packets`: their kind. Errors:
// kInvalidArgument with PACECAR_SECURITY=encrypt, unless the peer decides the format (`by_peer`).
Result<void> accept_without_tags(std::string_view nic, std::string_view packets, bool by_peer,
                                 const Params& params, const LogSink& log);

}  // namespace pacecar
