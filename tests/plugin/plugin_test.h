// Shared by the plugin's tests: the plugin's path and the environment in which it runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

// The tests can run on other NICs: PLUGIN_TEST_NICS names them, PLUGIN_TEST_ADDRESS is the address
// of the first one's interface.
inline std::string nic_names() { return setting("PLUGIN_TEST_NICS", "soft:udp:lo"); }
// Where the name that begins at `begin` ends: at a comma, but not at one before KEY=VALUE.
inline size_t end_of_nic(const std::string& names, size_t begin) {
  size_t end = names.find(',', begin);
  while (end != std::string::npos) {
    const size_t next = names.find(',', end + 1);
    if (names.substr(end + 1, next - end - 1).find('=') == std::string::npos) break;
    end = next;
  }
  return end;
}
inline size_t nic_count() {
  const std::string names = nic_names();
  size_t count = 1;
  for (size_t at = 0; (at = end_of_nic(names, at)) != std::string::npos; ++at) ++count;
  return count;
}
inline std::string nic_address() { return setting("PLUGIN_TEST_ADDRESS", "127.0.0.1"); }

// A host whose plugin is loaded and initialised, with the first `nics` NICs. Only the first call of
// a process chooses the NICs.
inline std::unique_ptr<FakeNcclHost> start_host(size_t nics = SIZE_MAX) {
  // Ranks may be threads: none reads the environment while another one writes to it.
  static const int once = [nics] {
    const std::string names = nic_names();
    size_t end = 0;
    for (size_t i = 0; i < nics && end != std::string::npos; ++i) end = end_of_nic(names, end + 1);
    return setenv("PACECAR_NICS", names.substr(0, end).c_str(), 1);
  }();
  if (once != 0) throw HostError("setenv failed");
  auto host = std::make_unique<FakeNcclHost>(kPluginPath);
  if (host->init() != nccl::NcclResult::kSuccess) throw HostError("init failed");
  return host;
}

// Connects rank 1 to rank 0: rank 0 gets the receiving end, rank 1 the sending one.
inline void* connect_ranks(const FakeNcclHost& host, Rank& rank, int device = 0) {
  if (rank.rank() == 1) return host.connect(rank.take(0), device);
  const Listening listening = host.listen(device);
  rank.give(1, listening.handle);
  void* const comm = host.accept(listening.comm);
  host.close_listen(listening.comm);
  return comm;
}
inline void close_rank(const FakeNcclHost& host, const Rank& rank, void* comm) {
  rank.rank() == 0 ? host.close_receive(comm) : host.close_send(comm);
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
