// What this program was built from.
#pragma once

#include <string_view>

namespace pacecar {

// The source, as git describes it: "-dirty" if changed since; "unknown" without a repository.
std::string_view build_commit();
std::string_view build_version();
std::string_view build_compiler();

}  // namespace pacecar
