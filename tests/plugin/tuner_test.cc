// Every version of the tuner's tables, with NCCL's calls and with wrong ones.
#include <dlfcn.h>

#include <array>
#include <vector>

#include "tests/plugin/plugin_test.h"
#include "tests/support/any_tuner.h"
#include "tests/support/draws.h"

namespace pacecar::test::tuner_test {
namespace {

using nccl::AnyTuner;
using nccl::kRuledOut;
using nccl::NcclResult;
using nccl::TunedAlgorithm;
using nccl::TunedFunction;
using nccl::TunedProtocol;

constexpr int kAlgorithms = nccl::kTunedAlgorithms;
constexpr int kProtocols = nccl::kTunedProtocols;
using Costs = std::array<float, kAlgorithms * kProtocols>;

float& at(Costs& costs, TunedAlgorithm algorithm, TunedProtocol protocol) {
  return costs[static_cast<size_t>(algorithm) * kProtocols + static_cast<size_t>(protocol)];
}

// NCCL's costs of an all-reduce between hosts: LL128 is ruled out.
Costs costs_of_nccl() {
  Costs costs;
  costs.fill(kRuledOut);
  float time_us = 100;
  for (const auto algorithm : {TunedAlgorithm::kTree, TunedAlgorithm::kRing}) {
    for (const auto protocol : {TunedProtocol::kLl, TunedProtocol::kSimple}) {
      at(costs, algorithm, protocol) = time_us++;
    }
  }
  return costs;
}

std::vector<bool> ruled_out(const Costs& costs) {
  std::vector<bool> found;
  for (const float cost : costs) found.push_back(cost == kRuledOut);
  return found;
}

std::unique_ptr<AnyTuner> tuner_of(int version) {
  void* const library = dlopen(kPluginPath, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  auto tuner = nccl::find_tuner(library, version);
  EXPECT_NE(tuner, nullptr) << "version " << version;
  return tuner;
}

// Runs `body` for each version in a process of its own, with PACECAR_LINE_RATE set. The oldest, a
// middle and the newest version every time: what each process computes takes long.
void for_each_version(const char* setting, const std::function<void(int version)>& body) {
  const int step = tests_all() ? 1 : (nccl::kNewestTuner - nccl::kOldestTuner) / 2;
  for (int version = nccl::kOldestTuner; version <= nccl::kNewestTuner; version += step) {
    SCOPED_TRACE(version);
    expect_processes_pass(1, [&](Rank&) {
      setenv("PACECAR_TUNER", setting, 1);
      setenv("PACECAR_LINE_RATE", "25G", 1);
      body(version);
    });
  }
}

NcclResult start(const AnyTuner& tuner, void** context, size_t ranks = 8, size_t nodes = 8,
                 nccl::NvlDomainsV5* domains = nullptr) {
  return tuner.init(context, ranks, nodes, nullptr, domains);  // the net plugin's logger is used
}

NcclResult ask(const AnyTuner& tuner, void* context, Costs& costs, size_t bytes = 1 << 20,
               TunedFunction function = TunedFunction::kAllReduce, int operations = 1) {
  int channels = 0;
  const NcclResult result = tuner.getCollInfo(context, function, bytes, operations, costs.data(),
                                              kAlgorithms, kProtocols, &channels);
  EXPECT_EQ(channels, 0) << "NCCL's number of channels is left";
  return result;
}

TEST(Tuner, EveryVersionSetsCosts) {
  for_each_version("on", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    EXPECT_STREQ(tuner->name(), "Pacecar");
    std::array<void*, 2> contexts{nccl::kGarbage, nccl::kGarbage};
    nccl::NvlDomainsV5 domains{.domains = 8, .ranks_min = 1, .ranks_max = 1};
    for (void*& context : contexts) {
      ASSERT_EQ(start(*tuner, &context, 8, 8, &domains), NcclResult::kSuccess);
      ASSERT_NE(context, nullptr);
    }
    for (size_t bytes = 1; bytes < size_t{1} << 40; bytes *= 5) {
      Costs costs = costs_of_nccl();
      ASSERT_EQ(ask(*tuner, contexts[0], costs, bytes), NcclResult::kSuccess);
      EXPECT_EQ(ruled_out(costs), ruled_out(costs_of_nccl()));
      EXPECT_NE(costs, costs_of_nccl());
    }
    size_t chunk_bytes = 131072;
    EXPECT_EQ(tuner->getChunkSize(contexts[0], TunedFunction::kAllReduce, 1 << 20,
                                  TunedAlgorithm::kRing, TunedProtocol::kSimple, 2, &chunk_bytes),
              NcclResult::kSuccess);
    EXPECT_EQ(chunk_bytes, 131072) << "NCCL's size is left";
    Costs large = costs_of_nccl();
    ask(*tuner, contexts[1], large, 1 << 30);
    // 2 (n - 1) / n of the buffer at 25 Gb/s; LL sends twice as much.
    const double wire_us = 1.75 * (1 << 30) / 3125;
    EXPECT_NEAR(at(large, TunedAlgorithm::kRing, TunedProtocol::kSimple), wire_us, wire_us / 5);
    EXPECT_GT(at(large, TunedAlgorithm::kRing, TunedProtocol::kLl), 1.8 * wire_us);
    EXPECT_EQ(tuner->finalize(contexts[0]), NcclResult::kSuccess);
    Costs after = costs_of_nccl();
    EXPECT_EQ(ask(*tuner, contexts[1], after), NcclResult::kSuccess);
    EXPECT_NE(after, costs_of_nccl()) << "the other context still works";
    EXPECT_EQ(tuner->finalize(contexts[1]), NcclResult::kSuccess);
  });
}

TEST(Tuner, EveryVersionToleratesWrongCalls) {
  for_each_version("on", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    EXPECT_EQ(start(*tuner, nullptr), NcclResult::kInvalidArgument);
    void* context = nullptr;
    ASSERT_EQ(start(*tuner, &context), NcclResult::kSuccess);
    const auto expect_untouched = [&](void* whose, auto... arguments) {
      Costs costs = costs_of_nccl();
      EXPECT_EQ(ask(*tuner, whose, costs, arguments...), NcclResult::kSuccess);
      EXPECT_EQ(costs, costs_of_nccl());
    };
    expect_untouched(nullptr);
    expect_untouched(nccl::kGarbage);
    expect_untouched(context, 0);
    for (const int unknown : {-1, 5, 8, 1000}) {
      expect_untouched(context, 4096, static_cast<TunedFunction>(unknown));
    }
    expect_untouched(context, 4096, TunedFunction::kAllReduce, 0);
    expect_untouched(context, 4096, TunedFunction::kAllReduce, -3);
    expect_untouched(context, 4096, TunedFunction::kAllReduce, 2);
    int channels = 0;
    const auto function = TunedFunction::kAllReduce;
    EXPECT_EQ(tuner->getCollInfo(context, function, 4096, 1, nullptr, 7, 3, &channels),
              NcclResult::kSuccess);
    Costs costs = costs_of_nccl();
    EXPECT_EQ(tuner->getCollInfo(context, function, 4096, 1, costs.data(), 7, 3, nullptr),
              NcclResult::kSuccess)
        << "no output for channels";
    EXPECT_EQ(tuner->finalize(context), NcclResult::kSuccess);
    EXPECT_EQ(tuner->finalize(context), NcclResult::kSuccess) << "twice";
    EXPECT_EQ(tuner->finalize(nullptr), NcclResult::kSuccess);
    EXPECT_EQ(tuner->finalize(nccl::kGarbage), NcclResult::kSuccess);
    expect_untouched(context);
    void* next = nullptr;
    ASSERT_EQ(start(*tuner, &next), NcclResult::kSuccess);
    EXPECT_NE(next, context) << "a finalized context is not used again";
    expect_untouched(context);
  });
}

TEST(Tuner, TablesOfUnknownShapeAreUnchanged) {
  for_each_version("on", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    void* context = nullptr;
    ASSERT_EQ(start(*tuner, &context), NcclResult::kSuccess);
    int channels = 0;
    for (const auto& [algorithms, protocols] :
         {std::pair{8, 3}, {7, 4}, {0, 3}, {7, 0}, {-1, 3}, {7, -1}, {1 << 30, 1 << 30}}) {
      std::array<float, 64> costs;
      costs.fill(50);
      tuner->getCollInfo(context, TunedFunction::kAllReduce, 4096, 1, costs.data(), algorithms,
                         protocols, &channels);
      EXPECT_EQ(std::count(costs.begin(), costs.end(), 50.0F), 64)
          << algorithms << " x " << protocols;
    }
    // A table of trees and rings only, as of a library without NVSwitch.
    std::array<float, 7> costs;
    costs.fill(50);
    tuner->getCollInfo(context, TunedFunction::kAllReduce, 4096, 1, costs.data(), 2, 3, &channels);
    EXPECT_EQ(std::count(costs.begin(), costs.end(), 50.0F), 1);
    EXPECT_EQ(costs[6], 50) << "beyond the table";
  });
}

TEST(Tuner, UnmodelledAlgorithmLeavesTheChoiceToNccl) {
  for_each_version("on", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    void* context = nullptr;
    ASSERT_EQ(start(*tuner, &context), NcclResult::kSuccess);
    for (const auto algorithm : {TunedAlgorithm::kCollNetDirect, TunedAlgorithm::kCollNetChain,
                                 TunedAlgorithm::kNvls, TunedAlgorithm::kNvlsTree}) {
      Costs costs = costs_of_nccl();
      at(costs, algorithm, TunedProtocol::kSimple) = 7;
      const Costs before = costs;
      EXPECT_EQ(ask(*tuner, context, costs), NcclResult::kSuccess);
      EXPECT_EQ(costs, before);
    }
  });
}

TEST(Tuner, MissingFactsLeaveTheChoiceToNccl) {
  for_each_version("on", [](int version) {
    const auto tuner = tuner_of(version);
    bool logs = false;  // no logger yet
    const auto expect_none = [&](const char* why, size_t ranks, size_t nodes,
                                 nccl::NvlDomainsV5* domains = nullptr) {
      void* context = nccl::kGarbage;
      EXPECT_EQ(start(*tuner, &context, ranks, nodes, domains), NcclResult::kSuccess);
      EXPECT_EQ(context, nullptr) << why;
      EXPECT_EQ(was_logged(nccl::LogSeverity::kInfo, why), logs) << why;
      Costs costs = costs_of_nccl();
      EXPECT_EQ(ask(*tuner, context, costs), NcclResult::kSuccess);
      EXPECT_EQ(costs, costs_of_nccl());
    };
    expect_none("no NIC of ours is open", 8, 8);
    const auto host = start_host();
    logs = true;
    expect_none("does not leave its host", 8, 1);
    expect_none("does not leave its host", 8, 0);
    expect_none("different numbers of ranks", 9, 8);
    expect_none("more hosts than ranks", 0, 8);
    nccl::NvlDomainsV5 rack{.domains = 1, .ranks_min = 8, .ranks_max = 8};
    if (version >= 5) expect_none("NVLink joins hosts", 8, 8, &rack);
  });
}

TEST(Tuner, ObserveModeLogsOnceAndChangesNothing) {
  for_each_version("observe", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    void* context = nullptr;
    ASSERT_EQ(start(*tuner, &context), NcclResult::kSuccess);
    for (const size_t bytes : {1 << 20, (1 << 20) + 1, 1 << 21}) {
      Costs costs = costs_of_nccl();
      ASSERT_EQ(ask(*tuner, context, costs, bytes), NcclResult::kSuccess);
      EXPECT_EQ(costs, costs_of_nccl());
    }
    const auto lines = logged_lines();
    const auto reports = std::count_if(lines.begin(), lines.end(), [](const LogLine& line) {
      return line.text.find("tuner: AllReduce of ") != std::string::npos &&
             line.text.find("NCCL takes Tree LL in 100.0 us") != std::string::npos;
    });
    EXPECT_EQ(reports, 2) << "once for each power of two";
  });
}

TEST(Tuner, DisabledTunerChangesNothing) {
  for_each_version("off", [](int version) {
    const auto host = start_host();
    const auto tuner = tuner_of(version);
    void* context = nccl::kGarbage;
    ASSERT_EQ(start(*tuner, &context), NcclResult::kSuccess);
    EXPECT_EQ(context, nullptr);
    Costs costs = costs_of_nccl();
    EXPECT_EQ(ask(*tuner, context, costs), NcclResult::kSuccess);
    EXPECT_EQ(costs, costs_of_nccl());
    EXPECT_EQ(tuner->finalize(context), NcclResult::kSuccess);
  });
}

}  // namespace
}  // namespace pacecar::test::tuner_test
