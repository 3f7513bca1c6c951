// Loading, init, properties, finalize.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "net_plugin/abi/profiler.h"
#include "net_plugin/abi/tuner.h"
#include "tests/plugin/plugin_test.h"
#include "tests/support/any_one_sided.h"

namespace pacecar::test::load_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;
using nccl::NetPropertiesV12;

std::string output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> chunk{};
  for (size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    text.append(chunk.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

size_t banners() {
  size_t count = 0;
  for (const LogLine& line : logged_lines()) {
    count += line.severity == LogSeverity::kInfo &&
             line.text.find("Pacecar on soft:udp:lo") != std::string::npos;
  }
  return count;
}

TEST(Load, ExportsTheTablesOnly) {
  std::istringstream symbols(output_of("nm -D --defined-only " + std::string(kPluginPath)));
  std::set<std::string> found;
  for (std::string address, type, name; symbols >> address >> type >> name;) {
    EXPECT_TRUE(name.starts_with("ncclNetPlugin_v") || name.starts_with("ncclProfiler_v") ||
                name.starts_with("ncclTunerPlugin_v") || name.starts_with("ncclGinPlugin_v") ||
                name.starts_with("ncclRmaPlugin_v"))
        << name;
    found.insert(name);
  }
  for (int version = nccl::kOldestVersion; version <= nccl::kNewestVersion; ++version) {
    EXPECT_TRUE(found.contains("ncclNetPlugin_v" + std::to_string(version))) << version;
  }
  for (int version = nccl::kOldestProfiler; version <= nccl::kNewestProfiler; ++version) {
    EXPECT_TRUE(found.contains("ncclProfiler_v" + std::to_string(version))) << version;
  }
  for (int version = nccl::kOldestTuner; version <= nccl::kNewestTuner; ++version) {
    EXPECT_TRUE(found.contains("ncclTunerPlugin_v" + std::to_string(version))) << version;
  }
  for (const char* const symbol : nccl::kOneSidedSymbols) {
    EXPECT_TRUE(found.contains(symbol)) << symbol;
  }
}

TEST(Load, PropertiesDescribeTheDevice) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    int count = -1;
    ASSERT_EQ(host->net().devices(&count), NcclResult::kSuccess);
    ASSERT_EQ(count, 1);
    NetPropertiesV12 properties;
    std::memset(static_cast<void*>(&properties), 0xab, sizeof properties);
    ASSERT_EQ(host->net().getProperties(0, &properties), NcclResult::kSuccess);
    EXPECT_STREQ(properties.name, "soft:udp:lo");
    EXPECT_EQ(properties.pci_path, nullptr);
    EXPECT_EQ(properties.pointer_support, nccl::kPointerHost);
    EXPECT_EQ(properties.registration_is_global, 1);
    EXPECT_EQ(properties.force_flush, 0);
    EXPECT_GT(properties.speed, 0);
    EXPECT_EQ(properties.port, 1);
    EXPECT_EQ(properties.latency, 0);
    EXPECT_GT(properties.max_connections, 0);
    EXPECT_EQ(properties.max_receives, 8);
    EXPECT_EQ(properties.device_type, nccl::kDeviceTypeHost);
    EXPECT_EQ(properties.device_version, 0);
    EXPECT_EQ(properties.virtual_device.count, 1);
    EXPECT_EQ(properties.virtual_device.devices[0], 0);
    EXPECT_EQ(properties.max_p2p_bytes, size_t{1} << 40);
    EXPECT_EQ(properties.max_collective_bytes, size_t{1} << 40);
    EXPECT_EQ(properties.max_multi_request_size, 1);
    EXPECT_EQ(properties.rail, nccl::kUndefined);
    EXPECT_EQ(properties.plane, nccl::kUndefined);
  });
}

auto values_of(const NetPropertiesV12& p) {
  return std::make_tuple(p.pci_path, p.guid, p.pointer_support, p.registration_is_global,
                         p.force_flush, p.speed, p.port, p.latency, p.max_connections,
                         p.max_receives, p.device_type, p.device_version, p.virtual_device.count,
                         p.virtual_device.devices[0], p.max_p2p_bytes, p.max_collective_bytes,
                         p.max_multi_request_size, p.rail, p.plane);
}

TEST(Load, EveryVersionReportsTheSameProperties) {
  for (int version = nccl::kOldestVersion; version < nccl::kNewestVersion; ++version) {
    expect_processes_pass(1, [version](Rank&) {
      const auto newest = start_host();
      FakeNcclHost host(kPluginPath, version);
      ASSERT_EQ(host.init(), NcclResult::kSuccess);
      EXPECT_STREQ(host.net().name, "Pacecar");
      NetPropertiesV12 own, full;
      ASSERT_EQ(host.net().getProperties(0, &own), NcclResult::kSuccess);
      ASSERT_EQ(newest->net().getProperties(0, &full), NcclResult::kSuccess);
      if (version < 8) full.registration_is_global = 0;
      if (version < 9) full.max_p2p_bytes = full.max_collective_bytes = size_t{1} << 30;
      EXPECT_STREQ(own.name, full.name);
      EXPECT_EQ(values_of(own), values_of(full)) << "version " << version;
    });
  }
}

TEST(Load, InitSucceedsAfterAFailedInitInAVersionWithoutFinalize) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_CC", "nonsense", 1);
    FakeNcclHost host(kPluginPath, 8);
    EXPECT_EQ(host.init(), NcclResult::kInvalidArgument);
    HandleBytes handle{};
    void* comm = &handle;
    EXPECT_EQ(host.net().listen(nullptr, 0, handle.data(), &comm), NcclResult::kInternalError);
    EXPECT_EQ(comm, nullptr);
    unsetenv("PACECAR_CC");
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    EXPECT_EQ(host.init(), NcclResult::kSuccess);
    EXPECT_EQ(host.init(), NcclResult::kSuccess) << "init may be repeated";
    const Ends pair = host.connect_self();
    host.close(pair);
  });
}

TEST(Load, AConnectionsTrafficClassIsCheckedInVersion10) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    setenv("PACECAR_TC", "32", 1);
    FakeNcclHost host(kPluginPath, 10);
    ASSERT_EQ(host.init(104), NcclResult::kSuccess);
    EXPECT_FALSE(was_logged(LogSeverity::kWarn, "traffic class"));
    for (int i = 0; i < 2; ++i) host.close(host.connect_self());
    const auto lines = logged_lines();
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const LogLine& line) {
                              return line.text.find("traffic class 104 is not used") !=
                                     std::string::npos;
                            }),
              1);
  });
}

TEST(Load, ANonexistentDeviceIsRefused) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    NetPropertiesV12 properties;
    EXPECT_EQ(host->net().getProperties(1, &properties), NcclResult::kInvalidArgument);
    EXPECT_EQ(host->net().getProperties(-1, &properties), NcclResult::kInvalidArgument);
    HandleBytes handle{};
    void* comm = &handle;
    EXPECT_NE(host->net().listen(host->context(), 7, handle.data(), &comm), NcclResult::kSuccess);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Load, UnsupportedFunctionsAreNull) {
  const FakeNcclHost host(kPluginPath);
  const auto expect_no_offload = [&]<typename Net>(const Net*, const char* symbol) {
    const auto* const table = static_cast<const Net*>(dlsym(host.module(), symbol));
    ASSERT_NE(table, nullptr) << symbol;
    EXPECT_EQ(table->getDeviceMr, nullptr) << symbol;
    EXPECT_EQ(table->irecvConsumed, nullptr) << symbol;
  };
  expect_no_offload(static_cast<nccl::NetV7*>(nullptr), "ncclNetPlugin_v7");
  expect_no_offload(static_cast<nccl::NetV8*>(nullptr), "ncclNetPlugin_v8");
  expect_no_offload(static_cast<nccl::NetV9*>(nullptr), "ncclNetPlugin_v9");
  expect_no_offload(static_cast<nccl::NetV10*>(nullptr), "ncclNetPlugin_v10");
  expect_no_offload(static_cast<nccl::NetV11*>(nullptr), "ncclNetPlugin_v11");
  expect_no_offload(static_cast<nccl::NetV12*>(nullptr), "ncclNetPlugin_v12");
  EXPECT_EQ(host.net().makeVDevice != nullptr, host.net().version >= 9);
}

TEST(Load, RefusesGpuMemory) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    std::array<uint8_t, 64> data{};
    void* memory = &data;
    EXPECT_EQ(host.net().regMr(pair.send, data.data(), data.size(), nccl::kPointerCuda, &memory),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(memory, nullptr);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "only host memory"));
  });
}

TEST(Load, TheFirstCommunicatorSetsTheTrafficClass) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    FakeNcclHost first(kPluginPath);
    ASSERT_EQ(first.init(105), NcclResult::kSuccess);  // with one of the ECN bits
    EXPECT_TRUE(was_logged(LogSeverity::kInfo, "PACECAR_TC=104 (application)"));
    FakeNcclHost same(kPluginPath);
    ASSERT_EQ(same.init(104), NcclResult::kSuccess);
    FakeNcclHost none(kPluginPath);
    ASSERT_EQ(none.init(), NcclResult::kSuccess);
    EXPECT_FALSE(was_logged(LogSeverity::kWarn, "traffic class"));
    FakeNcclHost other(kPluginPath);
    ASSERT_EQ(other.init(64), NcclResult::kSuccess);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "traffic class 64 is not used"));
  });
}

TEST(Load, PacecarTcOverridesTheTrafficClassOfACommunicator) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    setenv("PACECAR_TC", "32", 1);
    FakeNcclHost host(kPluginPath);
    ASSERT_EQ(host.init(104), NcclResult::kSuccess);
    EXPECT_TRUE(was_logged(LogSeverity::kInfo, "PACECAR_TC=32 (environment)"));
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "traffic class 104 is not used"));
  });
}

TEST(Load, AnImpossibleTrafficClassIsLogged) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    for (const int impossible : {-2, 256, 1 << 30}) {
      FakeNcclHost host(kPluginPath);
      ASSERT_EQ(host.init(impossible), NcclResult::kSuccess);
      EXPECT_TRUE(was_logged(LogSeverity::kWarn,
                             "traffic class " + std::to_string(impossible) + " is not used: give"));
    }
  });
}

TEST(Load, InitSucceedsAfterTheLastFinalize) {
  expect_processes_pass(1, [](Rank&) {
    for (size_t life = 1; life <= 3; ++life) {
      const auto host = start_host();
      EXPECT_EQ(banners(), life);
      const Ends pair = host->connect_self();
      host->close(pair);
    }
  });
}

// NCCL 2.28 and 2.29 have table 11, and forget the plugin with it; 2.30 has table 12.
TEST(Load, TheLastFinalizeWarnsIfThisNcclForgetsThePluginUnlessItIsKept) {
  constexpr const char* kSetting = "NCCL_NET_PLUGIN_REF_COUNT";
  for (const int version : {11, 12}) {
    for (const char* const count : {"", "0", "1"}) {
      expect_processes_pass(1, [version, count](Rank&) {
        if (*count != 0) setenv(kSetting, count, 1);
        setenv("PACECAR_NICS", "soft:udp:lo", 1);
        FakeNcclHost first(kPluginPath, version);
        FakeNcclHost last(kPluginPath, version);
        ASSERT_EQ(first.init(), NcclResult::kSuccess);
        ASSERT_EQ(last.init(), NcclResult::kSuccess);
        first.finalize();
        EXPECT_FALSE(was_logged(LogSeverity::kWarn, kSetting));
        last.finalize();
        EXPECT_EQ(was_logged(LogSeverity::kWarn, kSetting), version == 11 && *count != '1');
      });
    }
  }
}

TEST(Load, InitsInTwoThreadsShareOneContext) {
  expect_processes_pass(1, [](Rank&) {
    const auto first = std::make_unique<FakeNcclHost>(kPluginPath);
    const auto second = std::make_unique<FakeNcclHost>(kPluginPath);
    setenv("PACECAR_NICS", "soft:udp:lo", 1);
    std::thread other([&] { EXPECT_EQ(second->init(), NcclResult::kSuccess); });
    EXPECT_EQ(first->init(), NcclResult::kSuccess);
    other.join();
    EXPECT_EQ(banners(), 1U);
    EXPECT_NE(first->context(), second->context());
    // finalize of the first communicator does not disturb the second.
    first->finalize();
    const Ends pair = second->connect_self();
    second->close(pair);
  });
}

// Sends one message from rank 1 to rank 0.
void pass_message(const FakeNcclHost& host, const Rank& rank, void* comm, uint64_t number) {
  const Buffer buffer(host, comm, 300'000);
  if (rank.rank() == 1) {
    fill_pattern(buffer.bytes(), number);
    host.finish(host.send(comm, buffer.whole()));
  } else {
    host.finish(host.receive(comm, buffer.whole()));
    EXPECT_FALSE(find_mismatch(buffer.bytes(), number));
  }
}

TEST(Load, CommunicatorsComeAndGoWhileOthersWork) {
  for (const int version : {11, 12}) {
    expect_processes_pass(2, [version](Rank& rank) {
      setenv("PACECAR_NICS", "soft:udp:lo", 1);
      struct Communicator {
        Communicator(int of_version, Rank& rank) : host(kPluginPath, of_version) {
          EXPECT_EQ(host.init(), NcclResult::kSuccess);
          comm = connect_ranks(host, rank);
        }
        FakeNcclHost host;
        void* comm;
      };
      const auto end = [&](Communicator& one) {
        close_rank(one.host, rank, one.comm);
        one.host.finalize();
      };
      Communicator a(version, rank);
      Communicator b(version, rank);
      pass_message(a.host, rank, a.comm, 1);
      pass_message(b.host, rank, b.comm, 2);
      end(a);
      pass_message(b.host, rank, b.comm, 3);
      Communicator c(version, rank);
      pass_message(c.host, rank, c.comm, 4);
      pass_message(b.host, rank, b.comm, 5);
      end(b);
      pass_message(c.host, rank, c.comm, 6);
      EXPECT_EQ(banners(), 1U) << "all communicators share one context";
      end(c);
      Communicator d(version, rank);
      pass_message(d.host, rank, d.comm, 7);
      EXPECT_EQ(banners(), 2U) << "the last finalize destroys the context";
      end(d);
    });
  }
}

TEST(Load, AFailedInitLogsTheCure) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_CC", "nonsense", 1);
    FakeNcclHost host(kPluginPath);
    EXPECT_EQ(host.init(), NcclResult::kInvalidArgument);
    ASSERT_EQ(host.context(), nullptr);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "'nonsense': use one of"));
    EXPECT_EQ(host.net().finalize(nullptr), NcclResult::kSuccess);
    int count = -1;
    EXPECT_NE(host.net().devices(&count), NcclResult::kSuccess);
    EXPECT_EQ(count, 0);

    unsetenv("PACECAR_CC");
    EXPECT_EQ(host.init(), NcclResult::kSuccess);
  });
}

TEST(Load, PacecarRequireTurnsAFailedInitIntoASystemError) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", "soft:udp:no-such-interface", 1);
    setenv("PACECAR_REQUIRE", "1", 1);
    FakeNcclHost host(kPluginPath);
    EXPECT_EQ(host.init(), NcclResult::kSystemError);
    ASSERT_EQ(host.context(), nullptr);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "PACECAR_REQUIRE"));
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, "no-such-interface"));
  });
}

}  // namespace
}  // namespace pacecar::test::load_test
