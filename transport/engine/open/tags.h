// Security of NICs whose packets have no room for tags: standard RoCE, InfiniBand, libfabric.
// Thread rule: any.
#pragma once

#include <string_view>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/base/result.h"

namespace pacecar {

// Logs that the NIC's packets carry no tags, unless PACECAR_SECURITY=off. `packets` names the kind
// of packets. Errors: kInvalidArgument with PACECAR_SECURITY=encrypt, unless the wire format
// depends on the peer (`by_peer`).
Result<void> accept_without_tags(std::string_view nic, std::string_view packets, bool by_peer,
                                 const Params& params, const LogSink& log);

}  // namespace pacecar
