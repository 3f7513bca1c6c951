// What the plugin's tests share: the plugin's place, and the environment they run it in.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "bench/perf/pattern.h"
#include "tests/support/fake_nccl_host.h"
#include "tests/support/rank_group.h"

namespace pacecar::test {

using perf::fill_pattern;
using perf::find_mismatch;

inline constexpr const char* kPluginPath = PACECAR_PLUGIN_PATH;

inline std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// The same tests can run on another NIC: its name, and the address of its interface.
inline std::string nic_name() { return setting("PLUGIN_TEST_NIC", "soft:udp:lo"); }
inline std::string nic_address() { return setting("PLUGIN_TEST_ADDRESS", "127.0.0.1"); }

// A host whose plugin is loaded and initialised.
inline std::unique_ptr<FakeNcclHost> start_host() {
  static const int once = setenv("PACECAR_NICS", nic_name().c_str(), 1);  // ranks may be threads
  if (once != 0) throw HostError("setenv failed");
  auto host = std::make_unique<FakeNcclHost>(kPluginPath);
  if (host->init() != nccl::NcclResult::kSuccess) throw HostError("init failed");
  return host;
}

// Runs `body` in a process of its own with a started host and one connection to itself.
inline void with_connection(const std::function<void(const FakeNcclHost&, const Ends&)>& body) {
  expect_processes_pass(1, [&](Rank&) {
    const std::unique_ptr<FakeNcclHost> host = start_host();
    const Ends pair = host->connect_self();
    body(*host, pair);
    host->close(pair);
  });
}

}  // namespace pacecar::test
