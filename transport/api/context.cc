#include <fmt/format.h>

#include "transport/api/engine_context.h"
#include "transport/api/gpu/gpu_context.h"
#include "transport/api/lane_list.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/open/cluster_key.h"
#include "transport/engine/open/open_nic.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// The number of a NIC within its process has 8 bits.
constexpr size_t kMaxDevices = 256 / kMaxLanes;

std::vector<ParamSetting> with_origin(const std::vector<Setting>& settings,
                                      const std::string& origin) {
  std::vector<ParamSetting> all;
  for (const Setting& setting : settings) all.push_back({setting.first, setting.second, origin});
  return all;
}

NicInfo describe_nic(const OpenedNic& nic, const Params& params) {
  const NicCaps& caps = std::as_const(*nic.port).nic().caps();
  return NicInfo{
      .name = nic.name,
      .device = nic.device,
      .address = ip_to_string(nic.port->address()),
      .pci_path = nic.pci_path,
      .guid = nic.guid,
      .speed_mbps = nic.speed.bps() / 1'000'000,
      .mtu_bytes = caps.mtu,
      .paths = caps.paths,
      .engines = caps.cores,
      .max_connections = params.max_connections,
      .traffic_class = params.tc,
      .ecn = caps.sees_ecn,
      .offloads = caps.offloads,
  };
}

using Groups = std::vector<EngineContext::Group>;

Result<Groups> open_groups(std::span<const NicGroup> chosen, const Params& params,
                           const LogSink& log, GpuWays& gpu_ways) {
  const NicIdentity process = random_identity();
  uint8_t number = 0;
  Groups groups;
  for (const NicGroup& nics : chosen) {
    if (nics.size() > kMaxLanes || groups.size() == kMaxDevices) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("PACECAR_NICS joins {} NICs, or names more than {}: choose fewer; at "
                              "most {} can be joined",
                              nics.size(), kMaxDevices, kMaxLanes));
    }
    EngineContext::Group& group = groups.emplace_back();
    for (const NicCandidate& candidate : nics) {
      ASSIGN_OR_RETURN(auto nic, open_nic(candidate, params, log));
      NicInfo info = describe_nic(nic, params);
      ASSIGN_OR_RETURN(const auto rail, rail_of(params.rails, candidate));
      info.rail = rail;
      const NicCaps& caps = std::as_const(*nic.port).nic().caps();
      gpu_ways.choose(
          {.software = caps.software, .dma_buf = caps.dma_buf, .peer_memory = caps.peer_memory},
          info);
      const Rate first = first_rate(nic);
      ASSIGN_OR_RETURN(auto engine,
                       Engine::open(params, std::move(nic.port), identity_of_nic(process, number++),
                                    {.share = std::move(nic.share), .first_rate = first}));
      const auto destroy = [](Engine* old) {
        if (!old->inherited()) delete old;  // a forked child leaves its parent's NIC alone
      };
      group.push_back({.info = std::move(info), .engine = {engine.release(), destroy}});
    }
  }
  return groups;
}

// Logs why NICs cannot be used: without PACECAR_NICS a user does not expect that.
void report_flaws(const std::vector<NicCandidate>& candidates, const LogSink& log) {
  std::string names;
  std::string_view flaw;
  for (const NicCandidate& candidate : candidates) {
    if (candidate.flaw.empty()) continue;
    names += (names.empty() ? "" : ", ") + candidate.name();
    flaw = candidate.flaw;
  }
  if (!names.empty()) log(LogLevel::kWarn, fmt::format("{} cannot be used: {}", names, flaw));
}

Result<Groups> open_chosen(std::vector<NicCandidate> candidates, const Params& params,
                           const LogSink& log, GpuWays& gpu_ways) {
  ASSIGN_OR_RETURN(const auto chosen, choose_nics(params.nics, candidates));
  auto groups = open_groups(chosen, params, log, gpu_ways);
  const bool locked_out = !groups && groups.error().code == ErrorCode::kPermission;
  if (!locked_out || !params.nics.empty() || params.require) return groups;
  // Without PACECAR_NICS, NICs that cannot be opened are left out.
  if (std::erase_if(candidates, [](const auto& nic) { return nic.kind == NicKind::kVerbs; }) == 0) {
    return groups;
  }
  log(LogLevel::kWarn, groups.error().message + "; until then software NICs are used");
  return open_chosen(std::move(candidates), params, log, gpu_ways);
}

}  // namespace

Result<std::unique_ptr<Context>> Context::open(const Options& options) {
  allow_descriptors();
  bootstrap::keep_crypto_at_exit();
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(
      auto params,
      load_params_from_environment(with_origin(options.settings, "command line"), &warnings,
                                   kSystemParamFile, with_origin(options.defaults, "application")));
  LogSink log = options.log;
  log.most = params.log;
  for (const std::string& warning : warnings) log(LogLevel::kWarn, warning);
  ASSIGN_OR_RETURN(auto key, read_cluster_key(params.key_file));
  GpuWays gpu_ways(params.gpu, log);
  ASSIGN_OR_RETURN(auto candidates, list_nics(params.bootstrap));
  if (params.nics.empty()) report_flaws(candidates, log);
  ASSIGN_OR_RETURN(auto groups, open_chosen(std::move(candidates), params, log, gpu_ways));
  return gpu_ways.apply(std::make_unique<EngineContext>(std::move(params), std::move(groups), log,
                                                        std::move(key), options.pages));
}

}  // namespace pacecar
