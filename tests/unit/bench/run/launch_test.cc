// What `pacecar run` sets, and where it finds the libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "bench/run/launch.h"

namespace pacecar::launch_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Lookup environment(std::map<std::string, std::string> variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(RunLaunch, VerbsLibraryIsPreloadedBeforeOthers) {
  const LaunchPlan plan{.object = "/a/libpacecar-verbs.so", .nics = "soft:udp:eth0"};
  EXPECT_THAT(assignments_for(plan, environment({})),
              ElementsAre(Pair("LD_PRELOAD", "/a/libpacecar-verbs.so"),
                          Pair("PACECAR_NICS", "soft:udp:eth0")));
  EXPECT_THAT(assignments_for(plan, environment({{"LD_PRELOAD", "/b.so"}}))[0],
              Pair("LD_PRELOAD", "/a/libpacecar-verbs.so:/b.so"));
}

TEST(RunLaunch, PreloadedLibraryIsNotAddedAgain) {
  const LaunchPlan plan{.object = "/a/libpacecar-verbs.so"};
  EXPECT_THAT(assignments_for(plan, environment({{"LD_PRELOAD", "/b.so:/a/libpacecar-verbs.so"}})),
              ElementsAre(Pair("LD_PRELOAD", "/b.so:/a/libpacecar-verbs.so")));
}

TEST(RunLaunch, ProviderPathIsTheFolderOfTheLibfabricProvider) {
  const LaunchPlan plan{.as = ProgramInterface::kLibfabric, .object = "/a/libpacecar-fi.so"};
  EXPECT_THAT(assignments_for(plan, environment({})),
              ElementsAre(Pair("FI_PROVIDER_PATH", "/a"), Pair("FI_PROVIDER", "pacecar")));
  EXPECT_THAT(assignments_for(plan, environment({{"FI_PROVIDER", "tcp"}})),
              ElementsAre(Pair("FI_PROVIDER_PATH", "/a")));
}

TEST(RunLaunch, LibrariesAreFoundWhereTheyWereBuiltOrInstalled) {
  for (const std::string path : {"/net_plugin/verbs/libpacecar-verbs.so",
                                 "/lib/x86_64-linux-gnu/pacecar/verbs/libpacecar-verbs.so",
                                 "/lib64/pacecar/verbs/libpacecar-verbs.so"}) {
    const auto found = find_library(ProgramInterface::kVerbs, "/usr/bin",
                                    [&](const auto& place) { return place == "/usr" + path; });
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(*found, "/usr" + path);
  }
  const auto none = find_library(ProgramInterface::kLibfabric, "/usr/bin",
                                 [](const std::string&) { return false; });
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("libfabric-pacecar"));
}

}  // namespace
}  // namespace pacecar::launch_test
