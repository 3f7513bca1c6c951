// The profiles of bench/profiles that have a name in [hosts].
#pragma once

#include <span>
#include <string_view>

namespace pacecar {

struct NamedProfile {
  std::string_view name;
  std::string_view text;  // TOML
};
std::span<const NamedProfile> host_profiles();

}  // namespace pacecar
