// What a program needs to find in its environment to run over Pacecar's NICs.
//
// Pure functions; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/result.h"

namespace pacecar {

// The interface that the program uses.
enum class ProgramInterface : uint8_t {
  kVerbs,      // libibverbs: our library is loaded before it
  kLibfabric,  // libfabric: it finds our provider in FI_PROVIDER_PATH
};

struct LaunchPlan {
  ProgramInterface as = ProgramInterface::kVerbs;
  std::string object;  // libpacecar-verbs.so or libpacecar-fi.so, by its whole path
  std::string nics;    // for PACECAR_NICS; empty: it is left as it is
};

using Assignment = std::pair<std::string, std::string>;
// A variable of the environment as it is now.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

// The variables to set, in addition to the environment. Where a list has a value already, ours is
// put before it.
std::vector<Assignment> assignments_for(const LaunchPlan& plan, const Lookup& now);

// Where the library is, by the folder of the program `pacecar`: where it was built, or installed.
// Errors: kNotFound, with the places.
Result<std::string> find_library(ProgramInterface as, const std::string& program_folder,
                                 const std::function<bool(const std::string&)>& exists);

}  // namespace pacecar
