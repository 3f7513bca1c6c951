#include "tests/interop/open_nic.h"

#include <utility>
#include <vector>

#include "transport/base/params_environment.h"
#include "transport/engine/open/open_nic.h"

namespace pacecar::test {

Result<std::unique_ptr<NicPort>> open_nic(const std::string& name) {
  const std::vector<ParamSetting> defaults = {
      {.name = "PACECAR_WIRE", .value = "roce", .origin = "default"}};
  const auto params = load_params_from_environment({}, nullptr, "", defaults);
  if (!params) return tl::unexpected(params.error());
  const auto chosen = choose_nics(name, list_nics().value());
  if (!chosen) return tl::unexpected(chosen.error());
  auto nic = pacecar::open_nic(chosen->front().front(), *params, {});
  if (!nic) return tl::unexpected(nic.error());
  return std::move(nic->port);
}

}  // namespace pacecar::test
