#include "transport/api/state_document.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "transport/base/printable.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

// Set by PyTorch and others, Open MPI, Slurm, MPICH and Intel MPI.
constexpr std::array kRankVariables = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"};

std::optional<uint64_t> rank_of_process() {
  for (const char* variable : kRankVariables) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) continue;
    if (const auto rank = to_number<uint64_t>(text)) return rank;
  }
  return std::nullopt;
}

std::string hex(const NicIdentity& identity) {
  return fmt::format("{:02x}", fmt::join(identity, ""));
}

constexpr std::array kFlowStates = {"joining", "open", "broken", "leaving"};  // by FlowState

Json limits_json(const LimitCounts& counts) {
  Json json = Json::object();
  for (const LimitedBy limit : kEveryLimit) {
    json[std::string(to_string(limit))] = counts[static_cast<size_t>(limit)];
  }
  return json;
}

Json flow_json(const FlowStatus& flow) {
  Json json = {{"direction", flow.sending ? "send" : "receive"},
               {"number", fmt::format("{:016x}", flow.number)},
               {"peer", printable(flow.peer_address)},
               {"peer_identity", hex(flow.peer)},
               {"state", kFlowStates[static_cast<size_t>(flow.state)]},
               {"connections", flow.connections},
               {"weight", flow.weight},
               {"grant_bps", flow.explanation.grant.bps()},
               {"requests", flow.requests},
               {"still_ns", flow.still.ns()},
               {"awaits_peer", flow.awaits_peer},
               {"fault", printable(flow.fault)}};
  if (!flow.sending) return json;
  json.update({{"limited_by", to_string(flow.explanation.limited_by)},
               {"limits", limits_json(flow.limits)},
               {"rate_bps", flow.explanation.rate.bps()},
               {"grant_age_ns", flow.explanation.grant_age.ns()},
               {"share_bps", flow.explanation.share.bps()},
               {"core_bps", flow.explanation.core.bps()},
               {"budget_bps", flow.explanation.rate_max.bps()},
               {"rtt_ns", flow.rtt.ns()},
               {"path_mtu_bytes", flow.path_mtu},
               {"backlog_bytes", flow.stats.backlog},
               {"in_flight_bytes", flow.stats.in_flight},
               {"sent_bytes", flow.stats.sent},
               {"acknowledged_bytes", flow.stats.acked},
               {"unacknowledged_writes", flow.writes}});
  return json;
}

// Whole numbers without a decimal point.
Json number(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value >= 0 && value < kExact && value == std::floor(value)) {
    return static_cast<uint64_t>(value);
  }
  return value;
}

Json statistics_json(const metrics::NicFigures& figures) {
  Json json = Json::object();
  for (const metrics::Series& series : metrics::kSeries) {
    json[std::string(series.key)] = number(figures.*series.value);
  }
  Json& device = json["device"] = Json::object();
  for (const auto& [name, count] : figures.device) device[name] = number(count);
  return json;
}

Json sharer_json(const LinkSharer& sharer) {
  const auto [outgoing, incoming] = sharer.directions;
  return {{"pid", sharer.process},
          {"program", sharer.program},
          {"out_demand_bps", outgoing.demand().bps()},
          {"out_part_bps", outgoing.part().bps()},
          {"in_demand_bps", incoming.demand().bps()},
          {"in_part_bps", incoming.part().bps()}};
}

Json nic_json(const NicState& nic, StateDetail detail) {
  Json json = {{"name", printable(nic.info.name)},
               {"device", printable(nic.info.device)},
               {"address", printable(nic.info.address)},
               {"identity", hex(nic.identity)},
               {"line_rate_bps", nic.line_rate.bps()},
               {"congestion_control", nic.statistics.congestion_control},
               {"statistics", statistics_json(figures_of(nic))}};
  if (nic.link_up) json["link"] = *nic.link_up ? "up" : "down";
  if (detail == StateDetail::kSummary) return json;
  Json& sharers = json["sharing"] = Json::array();
  for (const LinkSharer& sharer : nic.sharers) sharers.push_back(sharer_json(sharer));
  Json& flows = json["flows"] = Json::array();
  for (const FlowStatus& flow : nic.flows) flows.push_back(flow_json(flow));
  return json;
}

}  // namespace

ProcessName own_process() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return {.host = host.data(),
          .program = program_invocation_short_name,
          .pid = getpid(),
          .rank = rank_of_process()};
}

std::string state_document(const ProcessState& state, StateDetail detail) {
  Json document = {
      {"schema_version", kSchemaVersion},
      {"host", printable(state.name.host)},
      {"program", printable(state.name.program)},
      {"pid", state.name.pid},
      {"uptime_ns", state.uptime.ns()},
      {"processor", {{"run_ns", state.processor.run_ns}, {"waited_ns", state.processor.waited_ns}}},
      {"banner", printable(state.banner)},
      {"nics", Json::array()}};
  if (state.name.rank) document["rank"] = *state.name.rank;
  for (const NicState& nic : state.nics) document["nics"].push_back(nic_json(nic, detail));
  return document.dump();
}

}  // namespace pacecar
