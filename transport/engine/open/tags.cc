#include "transport/engine/open/tags.h"

#include <fmt/format.h>

#include <algorithm>

namespace pacecar {
namespace {

// Row of param_table().
bool is_default(const Params& params, std::string_view name) {
  const auto table = param_table();
  const auto row = std::ranges::find(table, name, &ParamInfo::name);
  return params.origin(static_cast<size_t>(row - table.begin())) == "default";
}

}  // namespace

Result<void> accept_without_tags(std::string_view nic, std::string_view packets, bool by_peer,
                                 const Params& params, const LogSink& log) {
  if (params.security == Security::kOff) return {};
  if (params.security == Security::kEncrypt && !by_peer) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} sends {}, which PACECAR_SECURITY=encrypt does not allow: choose a "
                            "software NIC with PACECAR_WIRE=extended, or PACECAR_SECURITY=auth",
                            nic, packets));
  }
  log(is_default(params, "PACECAR_SECURITY") ? LogLevel::kInfo : LogLevel::kWarn,
      fmt::format(
          "{}: {} carry no tags: anyone who can send into its network can forge them (SECURITY.md)",
          nic, packets));
  return {};
}

}  // namespace pacecar
