#include "tests/interop/open_nic.h"

#include <vector>

#include "transport/base/params_environment.h"
#include "transport/engine/clock.h"
#include "transport/engine/nic_list.h"
#include "transport/engine/open_io.h"
#include "transport/engine/soft_port.h"

namespace pacecar::test {

Result<std::unique_ptr<NicPort>> open_nic(const std::string& name) {
  const std::vector<ParamSetting> defaults = {
      {.name = "PACECAR_WIRE", .value = "roce", .origin = "default"}};
  const auto params = load_params_from_environment({}, nullptr, "", defaults);
  if (!params) return tl::unexpected(params.error());
  const auto interfaces = choose_interfaces(name, list_interfaces());
  if (!interfaces) return tl::unexpected(interfaces.error());
  auto io = open_io(*params, interfaces->front());
  if (!io) return tl::unexpected(std::move(io.error()));
  return make_soft_port(*params, std::move(*io), clock_now());
}

}  // namespace pacecar::test
