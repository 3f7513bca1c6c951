#include "bench/perf/test_parameters.h"

#include <nlohmann/json.hpp>

#include "bench/cli/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TestParameters, iterations, duration_s, connections, tx_depth,
                                   rx_depth, bidirectional, validate, gigabits, cpu_util,
                                   congestion_control, mtu_bytes, tos, rate_bps, reversed,
                                   report_both, post_list, sl, timeout_ms)

std::vector<Setting> transport_settings(const TestParameters& parameters, const std::string& nics) {
  std::vector<Setting> settings;
  const auto set = [&](const char* name, uint64_t value, const char* unit = "") {
    if (value != 0) settings.emplace_back(name, std::to_string(value) + unit);
  };
  if (!nics.empty()) settings.emplace_back("PACECAR_NICS", nics);
  const std::string& control = parameters.congestion_control;
  if (!control.empty()) settings.emplace_back("PACECAR_CC", control);
  set("PACECAR_MTU", parameters.mtu_bytes);
  set("PACECAR_TC", parameters.tos);
  set("PACECAR_RATE_MAX", parameters.rate_bps);
  set("PACECAR_SL", parameters.sl);
  set("PACECAR_TIMEOUT", parameters.timeout_ms, "ms");
  return settings;
}

uint64_t buffer_bytes(const TestParameters& parameters, uint64_t size) {
  return size * parameters.connections * (uint64_t{parameters.tx_depth} + parameters.rx_depth);
}

nlohmann::json to_json(const TestParameters& parameters) { return parameters; }

Result<TestParameters> test_parameters_from_json(const nlohmann::json& object) {
  TestParameters parameters;
  ASSIGN_OR_RETURN(parameters.iterations,
                   cli::unsigned_field(object, "iterations", 1, kMaxIterations));
  ASSIGN_OR_RETURN(parameters.duration_s,
                   cli::number_field(object, "duration_s", 0, kMaxDurationSeconds));
  ASSIGN_OR_RETURN(parameters.connections,
                   cli::unsigned_field(object, "connections", 1, kMaxConnections));
  ASSIGN_OR_RETURN(parameters.tx_depth, cli::unsigned_field(object, "tx_depth", 1, kMaxDepth));
  ASSIGN_OR_RETURN(parameters.rx_depth, cli::unsigned_field(object, "rx_depth", 1, kMaxDepth));
  ASSIGN_OR_RETURN(parameters.bidirectional, cli::bool_field(object, "bidirectional"));
  ASSIGN_OR_RETURN(parameters.validate, cli::bool_field(object, "validate"));
  ASSIGN_OR_RETURN(parameters.gigabits, cli::bool_field(object, "gigabits"));
  ASSIGN_OR_RETURN(parameters.cpu_util, cli::bool_field(object, "cpu_util"));
  ASSIGN_OR_RETURN(parameters.congestion_control,
                   cli::text_field(object, "congestion_control", 32));
  ASSIGN_OR_RETURN(parameters.mtu_bytes, cli::unsigned_field(object, "mtu_bytes", 0, 65536));
  ASSIGN_OR_RETURN(parameters.tos, cli::unsigned_field(object, "tos", 0, 255));
  ASSIGN_OR_RETURN(parameters.rate_bps, cli::unsigned_field(object, "rate_bps", 0, UINT64_MAX));
  ASSIGN_OR_RETURN(parameters.reversed, cli::bool_field(object, "reversed"));
  ASSIGN_OR_RETURN(parameters.report_both, cli::bool_field(object, "report_both"));
  ASSIGN_OR_RETURN(parameters.post_list, cli::unsigned_field(object, "post_list", 1, kMaxDepth));
  ASSIGN_OR_RETURN(parameters.sl, cli::unsigned_field(object, "sl", 0, 15));
  ASSIGN_OR_RETURN(parameters.timeout_ms,
                   cli::unsigned_field(object, "timeout_ms", 0, kMaxTimeoutMs));
  return parameters;
}

}  // namespace pacecar::perf
