// A parameter file of any bytes: no crash, and accepted parameters are the same after they are
// printed and loaded again.
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/base/params.h"

namespace pacecar::params_fuzz {

FUZZ_TARGET(params) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto settings = parse_param_file(text, "fuzz");
  if (!settings) return 0;
  std::vector<std::string> warnings;
  const auto params = load_params(*settings, &warnings);
  if (!params) return 0;

  std::vector<ParamSetting> printed;
  for (size_t row = 0; row < param_table().size(); ++row) {
    printed.push_back({std::string(param_table()[row].name), params->text(row), "fuzz"});
  }
  const auto again = load_params(printed, nullptr);
  PACECAR_CHECK(again.has_value());
  for (size_t row = 0; row < param_table().size(); ++row) {
    PACECAR_CHECK(again->text(row) == params->text(row));
  }
  return 0;
}

}  // namespace pacecar::params_fuzz
