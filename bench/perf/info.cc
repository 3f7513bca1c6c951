// `pacecar info`: the NICs, congestion controls, limits and parameters of this host.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "cc/registry.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/share/memory/host_share.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr int kInfoSchemaVersion = 1;

struct InfoFlags {
  bool parameters = false;
  std::string json_file;
  bool quiet = false;
  bool no_color = false;
  std::string nics;
};

// The processes of this user that divide the NIC's link.
Json sharing_json(const NicInfo& nic) {
  Json sharing = Json::array();
  const auto sharers = link_sharers(link_name(nic.device, nic.guid), steady_now());
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

Json nic_json(const Context& context, size_t index) {
  const NicInfo& nic = context.nics()[index];
  return {{"name", nic.name},
          {"device", nic.device},
          {"address", nic.address},
          {"pci_path", nic.pci_path},
          {"guid", fmt::format("{:016x}", nic.guid)},
          {"speed_mbps", nic.speed_mbps},
          {"mtu_bytes", nic.mtu_bytes},
          {"paths", nic.paths},
          {"engines", nic.engines},
          {"ecn", nic.ecn},
          {"gpu_memory", nic.gpu_memory},
          {"offloads", nic.offloads},
          {"max_connections", nic.max_connections},
          {"flow_state_bytes", context.statistics(index).flow_state_bytes},
          {"flow_queue_bytes", context.statistics(index).flow_queue_bytes},
          {"sharing", sharing_json(nic)}};
}

Json nics_json(const Context& context) {
  Json nics = Json::array();
  for (size_t i = 0; i < context.nics().size(); ++i) nics.push_back(nic_json(context, i));
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

// Names are those that PACECAR_NICS takes.
Json fabrics_json(const Result<std::vector<FabricProvider>>& providers) {
  if (!providers) return {{"available", false}, {"reason", providers.error().message}};
  Json fabrics = {{"available", true}, {"providers", Json::array()}};
  for (const FabricProvider& provider : *providers) {
    fabrics["providers"].push_back({{"name", provider.name},
                                    {"usable", provider.usable},
                                    {provider.usable ? "abilities" : "lacks", provider.abilities}});
  }
  return fabrics;
}

Json back_end_json(const Result<void>& found) {
  if (!found) return {{"available", false}, {"reason", found.error().message}};
  return {{"available", true}};
}

std::string text_of(const Json& value) { return value.get<std::string>(); }

void print_sharer(const Json& sharer) {
  const auto gbps = [&](const char* key) { return sharer[key].get<double>() * 1e-9; };
  fmt::print("    shared by {} (pid {}): sends {:.3g} of {:.3g} Gb/s, receives {:.3g} of {:.3g}\n",
             text_of(sharer["program"]), sharer["pid"].get<int64_t>(), gbps("out_part_bps"),
             gbps("out_demand_bps"), gbps("in_part_bps"), gbps("in_demand_bps"));
}

// Text is printed from the JSON, so that both agree.
void print_nics(const Json& nics) {
  fmt::print("NICs\n");
  for (const Json& nic : nics) {
    const auto speed = nic["speed_mbps"].get<uint64_t>();
    fmt::print("  {}\n    address {}  speed {}  MTU {}  paths {}  engines {}  ECN {}\n",
               text_of(nic["name"]), text_of(nic["address"]),
               speed == 0 ? "unknown" : fmt::format("{:g} Gb/s", static_cast<double>(speed) / 1000),
               nic["mtu_bytes"].get<uint64_t>(), nic["paths"].get<uint64_t>(),
               nic["engines"].get<uint64_t>(), nic["ecn"].get<bool>() ? "yes" : "no");
    fmt::print("    at most {} connections; per flow {} bytes of state and {} of queues\n",
               nic["max_connections"].get<uint64_t>(), nic["flow_state_bytes"].get<uint64_t>(),
               nic["flow_queue_bytes"].get<uint64_t>());
    fmt::print("    {}\n", text_of(nic["gpu_memory"]));
    if (nic["offloads"] != "") fmt::print("    {}\n", text_of(nic["offloads"]));
    for (const Json& sharer : nic["sharing"]) print_sharer(sharer);
  }
}

void print_back_end(const char* name, const Json& back_end) {
  fmt::print("  {:<10} {}\n", name,
             back_end["available"].get<bool>() ? "available" : text_of(back_end["reason"]));
}

void print_fabrics(const Json& fabrics) {
  fmt::print("Providers of libfabric (-d, PACECAR_NICS)\n");
  if (!fabrics["available"].get<bool>()) {
    fmt::print("  none: {}\n", text_of(fabrics["reason"]));
    return;
  }
  for (const Json& provider : fabrics["providers"]) {
    const bool usable = provider["usable"].get<bool>();
    fmt::print("  {}\n    {}{}\n", text_of(provider["name"]),
               usable ? "" : "cannot be used: ", text_of(provider[usable ? "abilities" : "lacks"]));
  }
}

void print_controls(const Json& controls) {
  fmt::print("Congestion controls (--cc, PACECAR_CC)\n");
  for (const Json& control : controls) {
    fmt::print("  {:<10} {}\n", text_of(control["name"]), text_of(control["summary"]));
  }
}

void print_parameters(const Json& parameters) {
  for (const Json& parameter : parameters) {
    fmt::print("{}={}\n", text_of(parameter["name"]), text_of(parameter["value"]));
    fmt::print("    from {}; default '{}'; accepts {}\n", text_of(parameter["source"]),
               text_of(parameter["default"]), text_of(parameter["accepts"]));
    fmt::print("    {}\n", text_of(parameter["doc"]));
  }
}

Result<void> show_parameters(const InfoFlags& flags, const Console& console) {
  std::vector<ParamSetting> given;
  if (!flags.nics.empty()) given.push_back({"PACECAR_NICS", flags.nics, "command line"});
  std::vector<std::string> warnings;
  const auto values = load_params_from_environment(given, &warnings);
  for (const std::string& warning : warnings) console.warn(warning);
  if (!values) return tl::unexpected(values.error());
  const Json parameters = parameters_json(*values);
  if (!flags.json_file.empty()) {
    const auto written = write_json(
        flags.json_file, {{"schema_version", kInfoSchemaVersion}, {"parameters", parameters}});
    if (!written || flags.json_file == kStandardOutput) return written;
  }
  print_parameters(parameters);
  return {};
}

Result<void> show_host(const InfoFlags& flags, const Console& console) {
  Options options;
  options.log = console.log_sink();
  options.settings.emplace_back("PACECAR_SHARE", "off");  // takes no part of any link
  if (!flags.nics.empty()) options.settings.emplace_back("PACECAR_NICS", flags.nics);
  ASSIGN_OR_RETURN(const auto context, Context::open(options));
  const Json nics = nics_json(*context);
  const Json verbs = back_end_json(find_verbs());
  const Json dpdk = back_end_json(find_dpdk());
  const Json fabrics = fabrics_json(list_fabric_providers());
  const Json controls = controls_json();
  if (!flags.json_file.empty()) {
    const Json document = {{"schema_version", kInfoSchemaVersion},
                           {"version", PACECAR_VERSION},
                           {"nics", nics},
                           {"libibverbs", verbs},
                           {"dpdk", dpdk},
                           {"libfabric", fabrics},
                           {"congestion_controls", controls},
                           {"limits",
                            {{"receives_per_connection", kMaxRequests},
                             {"buffers_per_receive", kMaxReceiveBuffers},
                             {"sends_per_connection", kMaxRequests * kMaxReceiveBuffers}}}};
    const auto written = write_json(flags.json_file, document);
    if (!written || flags.json_file == kStandardOutput) return written;
  }
  fmt::print("Pacecar {}\n\n", PACECAR_VERSION);
  print_nics(nics);
  fmt::print("\nBack ends\n");
  print_back_end("RDMA NICs", verbs);
  print_back_end("soft:dpdk", dpdk);
  fmt::print("\n");
  print_fabrics(fabrics);
  fmt::print("\n");
  print_controls(controls);
  fmt::print("\nLimits of a connection\n  {} receives of up to {} buffers, {} sends\n",
             kMaxRequests, kMaxReceiveBuffers, kMaxRequests * kMaxReceiveBuffers);
  return {};
}

}  // namespace

int run_info(int argc, char** argv) {
  InfoFlags flags;
  CLI::App app("Shows NICs, congestion controls, limits and parameters of this host.",
               "pacecar info");
  app.add_flag("-c,--config", flags.parameters,
               "every parameter: value, source, default, what it accepts, meaning");
  add_json_flag(app, flags.json_file, "write it");
  app.add_option("-d,--ib-dev", flags.nics, "NICs, as PACECAR_NICS");
  app.add_flag("--quiet", flags.quiet, "no messages but warnings and errors");
  app.add_flag("--no-color", flags.no_color, "no colours");
  app.footer(kExitCodesHelp);
  return run_subcommand(app, argc, argv, {.quiet = &flags.quiet, .no_color = &flags.no_color},
                        [&](const Console& console) {
                          return flags.parameters ? show_parameters(flags, console)
                                                  : show_host(flags, console);
                        });
}

}  // namespace pacecar::perf
