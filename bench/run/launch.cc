#include "bench/run/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

namespace pacecar {
namespace {

// "ours:theirs", without duplicates.
std::string before(const std::string& ours, const std::optional<std::string>& theirs) {
  if (!theirs || theirs->empty()) return ours;
  const std::string all = ":" + *theirs + ":";
  return all.find(":" + ours + ":") != std::string::npos ? *theirs : ours + ":" + *theirs;
}

}  // namespace

std::vector<Assignment> assignments_for(const LaunchPlan& plan, const Lookup& now) {
  std::vector<Assignment> set;
  if (plan.as == ProgramInterface::kVerbs) {
    set.emplace_back("LD_PRELOAD", before(plan.object, now("LD_PRELOAD")));
  } else {
    const std::string folder = std::filesystem::path(plan.object).parent_path();
    set.emplace_back("FI_PROVIDER_PATH", before(folder, now("FI_PROVIDER_PATH")));
    if (!now("FI_PROVIDER")) set.emplace_back("FI_PROVIDER", "pacecar");
  }
  if (!plan.nics.empty()) set.emplace_back("PACECAR_NICS", plan.nics);
  return set;
}

Result<std::string> find_library(ProgramInterface as, const std::string& program_folder,
                                 const std::function<bool(const std::string&)>& exists) {
  const bool verbs = as == ProgramInterface::kVerbs;
  const std::string file = verbs ? "libpacecar-verbs.so" : "libpacecar-fi.so";
  const std::string built = verbs ? "../net_plugin/verbs/" : "../net_plugin/libfabric/";
  const std::string installed = verbs ? "pacecar/verbs/" : "libfabric/";
  std::vector<std::string> places = {built};
  for (const char* const folder :
       {"../lib/x86_64-linux-gnu/", "../lib/aarch64-linux-gnu/", "../lib64/", "../lib/"}) {
    places.push_back(folder + installed);
  }
  for (std::string& place : places) {
    place = std::filesystem::path(program_folder + "/" + place + file).lexically_normal();
    if (exists(place)) return place;
  }
  return fail(
      ErrorCode::kNotFound,
      fmt::format("{} is in none of {}: install the package {}, or build it with {}", file,
                  fmt::join(places, ", "), verbs ? "libibverbs-pacecar" : "libfabric-pacecar",
                  verbs ? "libibverbs-dev" : "libfabric-dev"));
}

}  // namespace pacecar
