// What the plugin's tests share: the plugin's place, and the environment they run it in.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "tests/support/fake_nccl_host.h"
#include "tests/support/rank_group.h"

namespace pacecar::test {

inline constexpr const char* kPluginPath = PACECAR_PLUGIN_PATH;

// A host whose plugin is loaded and initialised.
inline std::unique_ptr<FakeNcclHost> start_host() {
  // Another NIC can be named for the same tests. Ranks may be threads.
  static const char* const other = std::getenv("PACECAR_TEST_NICS");
  static const int once = setenv("PACECAR_NICS", other != nullptr ? other : "soft:udp:lo", 1);
  if (once != 0) throw HostError("setenv failed");
  auto host = std::make_unique<FakeNcclHost>(kPluginPath);
  if (host->init() != nccl::NcclResult::kSuccess) throw HostError("init failed");
  return host;
}

// Runs `body` in a process of its own with a started host and one connection to itself.
inline void with_connection(
    const std::function<void(const FakeNcclHost&, const ConnectionPair&)>& body) {
  expect_processes_pass(1, [&](Rank&) {
    const std::unique_ptr<FakeNcclHost> host = start_host();
    const ConnectionPair pair = host->connect_to_self();
    body(*host, pair);
    host->close(pair);
  });
}

}  // namespace pacecar::test
