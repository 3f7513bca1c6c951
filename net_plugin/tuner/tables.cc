// The tables of functions by which NCCL calls the tuner, one per version, over one Tuning per
// communicator. The functions never throw, never wait after init, and return success: a failed init
// would end the communicator, and NCCL always has its own choice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "net_plugin/abi/tuner.h"
#include "net_plugin/communicator.h"
#include "net_plugin/log.h"
#include "net_plugin/tuner/tuner.h"
#include "transport/base/params_environment.h"

namespace pacecar::tuner {
namespace {

using nccl::NcclResult;
using nccl::NvlDomainsV5;
using nccl::TunedFunction;

// Never destroyed: NCCL's threads may still call while the process ends.
Tuners& tuners() {
  static Tuners* const instance = new Tuners;
  return *instance;
}

// The open NICs; members of a bond are not listed separately.
std::vector<predict::NicKind> open_nics() {
  std::vector<predict::NicKind> facts;
  const std::shared_ptr<Context> context = plugin::current_context();
  if (context == nullptr) return facts;
  const std::span<const NicInfo> nics = context->nics();
  std::vector<bool> joined(nics.size());
  for (const NicInfo& nic : nics) {
    for (const size_t member : nic.members) joined[member] = true;
  }
  for (size_t i = 0; i < nics.size(); ++i) {
    if (joined[i]) continue;
    facts.push_back(nic_kind(nics[i].name, static_cast<double>(nics[i].speed_mbps) * 1e6 / 8,
                             static_cast<double>(nics[i].mtu_bytes)));
  }
  return facts;
}

void* open(size_t ranks, size_t nodes, const NvlDomainsV5* domains) {
  // Invalid parameters turn the tuner off, too; the net plugin logs why.
  const Params params = load_params_from_environment({}, nullptr).value_or(Params());
  if (params.tuner == TunerSetting::kOff) return nullptr;
  Facts facts{.ranks = ranks,
              .nodes = nodes,
              .nics = open_nics(),
              .ranks_per_nvlink_domain = {},
              .oversubscription = params.oversubscription,
              .hosts_per_leaf = params.leaf_hosts,
              .cable_delay_s = params.cable_delay.seconds()};
  if (domains != nullptr && domains->ranks_max > 0) {
    facts.ranks_per_nvlink_domain = static_cast<size_t>(domains->ranks_max);
  }
  const auto clusters = clusters_of(facts);
  if (!clusters) {
    plugin::log(LogLevel::kInfo, "tuner: NCCL's own choices stand: " + clusters.error().message);
    return nullptr;
  }
  const bool observes = params.tuner == TunerSetting::kObserve;
  void* const context = tuners().open(std::make_shared<Tuning>(Tuner(*clusters), observes));
  plugin::log(LogLevel::kInfo, observes ? "tuner: logs what it would choose"
                                        : "tuner: chooses algorithms and protocols");
  return context;
}

NcclResult init(void** context, size_t ranks, size_t nodes, nccl::Logger logger,
                const NvlDomainsV5* domains) noexcept {
  if (context == nullptr) return NcclResult::kInvalidArgument;
  *context = nullptr;
  try {
    plugin::set_logger(logger);
    *context = open(ranks, nodes, domains);
  } catch (...) {  // no memory: NCCL's own choices stand
  }
  return NcclResult::kSuccess;
}

NcclResult init_v3(size_t ranks, size_t nodes, nccl::Logger logger, void** context) noexcept {
  return init(context, ranks, nodes, logger, nullptr);
}

NcclResult init_v5(void** context, uint64_t /*comm_id*/, size_t ranks, size_t nodes,
                   nccl::Logger logger, NvlDomainsV5* domains,
                   nccl::TunerConstants* /*constants*/) noexcept {
  return init(context, ranks, nodes, logger, domains);
}

std::string text_of(const Pick& pick) {
  return fmt::format("{} {} in {:.1f} us", name_of(pick.algorithm), name_of(pick.protocol),
                     pick.time_us);
}

// Logs what the tuner would choose, once per function and power of two of bytes.
void log_once(Tuning& tuning, const Call& call, const CostView& own) {
  constexpr int kEntries = nccl::kTunedAlgorithms * nccl::kTunedProtocols;
  const auto function = static_cast<size_t>(call.function);
  if (function >= tuning.logged.size() || own.algorithms * own.protocols > kEntries) return;
  const uint64_t bit = std::bit_floor(call.bytes);
  if ((tuning.logged[function].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  std::array<float, kEntries> copy{};
  std::copy_n(own.entries, own.algorithms * own.protocols, copy.begin());
  const CostView ours{copy.data(), own.algorithms, own.protocols};
  if (!tuning.tuner.fill(call, ours)) return;
  const auto nccl_takes = fastest(own);
  const auto we_take = fastest(ours);
  if (!nccl_takes || !we_take) return;
  constexpr std::array<std::string_view, nccl::kTunedFunctions> kNames{
      "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  plugin::log(LogLevel::kInfo,
              fmt::format("tuner: {} of {} B: would take {}; NCCL takes {}", kNames[function],
                          call.bytes, text_of(*we_take), text_of(*nccl_takes)));
}

NcclResult get_v4(void* context, TunedFunction function, size_t bytes, int operations,
                  float** costs, int algorithms, int protocols, int /*registered*/,
                  int* /*channels*/) noexcept {
  const std::shared_ptr<Tuning> tuning = tuners().find(context);
  if (tuning == nullptr || costs == nullptr) return NcclResult::kSuccess;
  const Call call{.function = function, .bytes = bytes, .operations = operations};
  const CostView view{reinterpret_cast<float*>(costs), algorithms, protocols};
  if (!tuning->observes) {
    tuning->tuner.fill(call, view);
    return NcclResult::kSuccess;
  }
  try {
    log_once(*tuning, call, view);
  } catch (...) {  // no memory: it is not logged
  }
  return NcclResult::kSuccess;
}

NcclResult get_v3(void* context, TunedFunction function, size_t bytes, int operations,
                  float** costs, int algorithms, int protocols, int* channels) noexcept {
  return get_v4(context, function, bytes, operations, costs, algorithms, protocols, 0, channels);
}

NcclResult finalize(void* context) noexcept {
  tuners().close(context);
  return NcclResult::kSuccess;
}

}  // namespace

extern "C" {

#define PACECAR_TUNER_TABLE(version, ...)                                              \
  [[gnu::visibility(                                                                   \
      "default")]] extern constexpr nccl::TunerV##version ncclTunerPlugin_v##version = \
      __VA_ARGS__;

PACECAR_TUNER_TABLE(3, {"Pacecar", init_v3, get_v3, finalize})
PACECAR_TUNER_TABLE(4, {"Pacecar", init_v3, get_v4, finalize})
PACECAR_TUNER_TABLE(5, {"Pacecar", init_v5, get_v4, finalize})
PACECAR_TUNER_TABLE(6, {{"Pacecar", init_v5, get_v4, finalize}, nullptr})
PACECAR_TUNER_TABLE(7, {{"Pacecar", init_v5, get_v4, finalize}, nullptr})
#undef PACECAR_TUNER_TABLE
}

}  // namespace pacecar::tuner
