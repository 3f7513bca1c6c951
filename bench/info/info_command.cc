// `pacecar info`: the NICs, congestion controls, limits and parameters of this host.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/subcommands.h"
#include "cc/registry.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/open/back_ends.h"
#include "transport/share/memory/host_share.h"

namespace pacecar {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NicInfo, name, device, address, pci_path, speed_mbps, mtu_bytes,
                                   paths, engines, ecn, gpu_memory, offloads, max_connections)

}  // namespace pacecar

namespace pacecar {
namespace {

using Json = nlohmann::json;

constexpr int kInfoSchemaVersion = 1;

struct InfoFlags {
  bool parameters = false;
  std::string json_file;
  std::string nics;
};

// The processes of this user that divide the NIC's link.
Json sharing_json(const NicInfo& nic) {
  Json sharing = Json::array();
  const auto sharers = link_sharers(link_name(nic.device, nic.guid), cli::steady_now());
  if (!sharers) return sharing;
  for (const LinkSharer& sharer : *sharers) {
    const auto [outgoing, incoming] = sharer.directions;
    sharing.push_back({{"pid", sharer.process},
                       {"program", sharer.program},
                       {"out_demand_bps", outgoing.demand().bps()},
                       {"out_part_bps", outgoing.part().bps()},
                       {"in_demand_bps", incoming.demand().bps()},
                       {"in_part_bps", incoming.part().bps()}});
  }
  return sharing;
}

Json nics_json(const Context& context) {
  Json nics = Json::array();
  for (size_t i = 0; i < context.nics().size(); ++i) {
    const NicInfo& info = context.nics()[i];
    Json& nic = nics.emplace_back(info);
    nic["guid"] = fmt::format("{:016x}", info.guid);
    nic["flow_state_bytes"] = context.statistics(i).flow_state_bytes;
    nic["flow_queue_bytes"] = context.statistics(i).flow_queue_bytes;
    nic["sharing"] = sharing_json(info);
  }
  return nics;
}

Json controls_json() {
  Json controls = Json::array();
  for (const ControllerInfo& control : controllers()) {
    controls.push_back({{"name", control.name},
                        {"summary", control.summary},
                        {"needs_telemetry", control.needs_telemetry}});
  }
  return controls;
}

Json parameters_json(const Params& values) {
  const Params defaults;
  Json parameters = Json::array();
  for (size_t row = 0; row < param_table().size(); ++row) {
    const ParamInfo& info = param_table()[row];
    parameters.push_back({{"name", info.name},
                          {"value", values.text(row)},
                          {"source", values.origin(row)},
                          {"default", defaults.text(row)},
                          {"accepts", describe_accepted(info)},
                          {"doc", info.doc}});
  }
  return parameters;
}

// PACECAR_NICS takes these names.
Json fabrics_json(const Result<std::vector<FabricProvider>>& providers) {
  if (!providers) return {{"available", false}, {"reason", providers.error().message}};
  Json fabrics = {{"available", true}, {"providers", Json::array()}};
  for (const FabricProvider& provider : *providers) {
    fabrics["providers"].push_back({{"name", provider.name}, {"abilities", provider.abilities}});
  }
  return fabrics;
}

Json back_end_json(const Result<void>& found) {
  if (!found) return {{"available", false}, {"reason", found.error().message}};
  return {{"available", true}};
}

// Text is made from the JSON, so that both agree.
std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string sharer_text(const Json& sharer) {
  const auto gbps = [&](const char* key) { return sharer[key].get<double>() * 1e-9; };
  return fmt::format(
      "    shared by {} (pid {}): sends {:.3g} of {:.3g} Gb/s, receives {:.3g} of {:.3g}\n",
      text_of(sharer["program"]), text_of(sharer["pid"]), gbps("out_part_bps"),
      gbps("out_demand_bps"), gbps("in_part_bps"), gbps("in_demand_bps"));
}

std::string nic_text(const Json& nic) {
  const auto speed = nic["speed_mbps"].get<uint64_t>();
  std::string text = fmt::format(
      "  {}\n    address {}  speed {}  MTU {}  paths {}  engines {}  ECN {}\n"
      "    at most {} connections; per flow {} bytes of state and {} of queues\n    {}\n",
      text_of(nic["name"]), text_of(nic["address"]),
      speed == 0 ? "unknown (NCCL gets 10 Gb/s; PACECAR_LINE_RATE sets it)"
                 : fmt::format("{:g} Gb/s", static_cast<double>(speed) / 1000),
      text_of(nic["mtu_bytes"]), text_of(nic["paths"]), text_of(nic["engines"]),
      nic["ecn"].get<bool>() ? "yes" : "no", text_of(nic["max_connections"]),
      text_of(nic["flow_state_bytes"]), text_of(nic["flow_queue_bytes"]),
      text_of(nic["gpu_memory"]));
  if (nic["offloads"] != "") text += fmt::format("    {}\n", text_of(nic["offloads"]));
  for (const Json& sharer : nic["sharing"]) text += sharer_text(sharer);
  return text;
}

std::string fabrics_text(const Json& fabrics) {
  std::string text = "Providers of libfabric (-d, PACECAR_NICS)\n";
  if (fabrics.contains("reason")) text += fmt::format("  none: {}\n", text_of(fabrics["reason"]));
  for (const Json& provider : fabrics.value("providers", Json::array())) {
    text +=
        fmt::format("  {}\n    {}\n", text_of(provider["name"]), text_of(provider["abilities"]));
  }
  return text;
}

std::string host_text(const Json& host) {
  std::string text = fmt::format("Pacecar {}\n\nNICs\n", PACECAR_VERSION);
  for (const Json& nic : host["nics"]) text += nic_text(nic);
  text += "\nBack ends\n";
  for (const auto& [name, key] : {std::pair("RDMA NICs", "libibverbs"), {"soft:dpdk", "dpdk"}}) {
    text += fmt::format("  {:<10} {}\n", name, host[key].value("reason", "available"));
  }
  text += fmt::format("\n{}\nCongestion controls (--cc, PACECAR_CC)\n",
                      fabrics_text(host["libfabric"]));
  for (const Json& control : host["congestion_controls"]) {
    text += fmt::format("  {:<10} {}\n", text_of(control["name"]), text_of(control["summary"]));
  }
  return text +
         fmt::format("\nLimits of a connection\n  {} receives of up to {} buffers, {} sends\n",
                     kMaxRequests, kMaxReceiveBuffers, kMaxRequests * kMaxReceiveBuffers);
}

Result<void> show_parameters(const InfoFlags& flags, const cli::Console& console) {
  std::vector<ParamSetting> given;
  if (!flags.nics.empty()) given.push_back({"PACECAR_NICS", flags.nics, "command line"});
  std::vector<std::string> warnings;
  const auto values = load_params_from_environment(given, &warnings);
  for (const std::string& warning : warnings) console.warn(warning);
  if (!values) return tl::unexpected(values.error());
  const Json parameters = parameters_json(*values);
  std::string text;
  for (const Json& parameter : parameters) {
    text += fmt::format("{}={}\n    from {}; default '{}'; accepts {}\n    {}\n",
                        text_of(parameter["name"]), text_of(parameter["value"]),
                        text_of(parameter["source"]), text_of(parameter["default"]),
                        text_of(parameter["accepts"]), text_of(parameter["doc"]));
  }
  return cli::write_results(text, flags.json_file,
                            {{"schema_version", kInfoSchemaVersion}, {"parameters", parameters}});
}

Result<void> show_host(const InfoFlags& flags, const cli::Console& console) {
  Options options;
  options.log = console.log_sink();
  options.settings.emplace_back("PACECAR_SHARE", "off");  // takes no part of any link
  if (!flags.nics.empty()) options.settings.emplace_back("PACECAR_NICS", flags.nics);
  ASSIGN_OR_RETURN(const auto context, Context::open(options));
  const Json host = {{"schema_version", kInfoSchemaVersion},
                     {"version", PACECAR_VERSION},
                     {"nics", nics_json(*context)},
                     {"libibverbs", back_end_json(find_verbs())},
                     {"dpdk", back_end_json(find_dpdk())},
                     {"libfabric", fabrics_json(list_fabric_providers())},
                     {"congestion_controls", controls_json()},
                     {"limits",
                      {{"receives_per_connection", kMaxRequests},
                       {"buffers_per_receive", kMaxReceiveBuffers},
                       {"sends_per_connection", kMaxRequests * kMaxReceiveBuffers}}}};
  return cli::write_results(host_text(host), flags.json_file, host);
}

}  // namespace

int run_info(int argc, char** argv) {
  InfoFlags flags;
  CLI::App app("Shows NICs, congestion controls, limits and parameters of this host.",
               "pacecar info");
  app.add_flag("-c,--config", flags.parameters,
               "every parameter: value, source, default, what it accepts, meaning");
  cli::add_json_flag(app, flags.json_file, "write it");
  app.add_option("-d,--nic", flags.nics, "NICs, as PACECAR_NICS");
  app.add_option("--ib-dev", flags.nics)->group(cli::kSilent);
  app.footer(cli::kExitCodesHelp);
  return cli::run_subcommand(app, argc, argv, {}, [&](const cli::Console& console) {
    return flags.parameters ? show_parameters(flags, console) : show_host(flags, console);
  });
}

}  // namespace pacecar
