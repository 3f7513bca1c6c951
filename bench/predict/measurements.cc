#include "bench/predict/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/perf/files.h"
#include "transport/base/return_if_error.h"

namespace pacecar::predict {
namespace {

using Json = nlohmann::json;

Measured point(Measured::Kind kind, Bytes bytes, double time_s) {
  Measured measured{.kind = kind, .time_s = time_s};
  measured.collective.bytes = bytes;
  return measured;
}

// Of `bw` and `lat`: perftest's keys.
std::optional<Measured> point_to_point(const Json& result, bool gigabits) {
  const auto bytes = result.at("MsgSize").get<Bytes>();
  if (result.contains("t_typical")) {
    return point(Measured::Kind::kOneWay, bytes, result.at("t_typical").get<double>() * 1e-6);
  }
  if (!result.contains("BW_average")) return std::nullopt;
  const double unit = gigabits ? 1e9 / 8 : 1024.0 * 1024;
  return point(Measured::Kind::kPerMessage, bytes,
               static_cast<double>(bytes) / (result.at("BW_average").get<double>() * unit));
}

Result<std::vector<Measured>> collectives(const Json& document) {
  Measured each{.hosts = document.at("ranks").get<uint32_t>()};
  const auto operation = document.at("op").get<std::string>();
  size_t number = 0;
  while (number < kOperations && name_of(static_cast<Operation>(number)) != operation) ++number;
  if (number == kOperations) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("has the operation '{}', which the "
                                                         "predictor does not know",
                                                         operation));
  }
  each.collective.operation = static_cast<Operation>(number);
  if (each.collective.operation == Operation::kAllToAll) {
    each.collective.algorithm = Algorithm::kPairwise;
  }
  if (document.value("algorithm", "") == name_of(Algorithm::kTree)) {
    each.collective.algorithm = Algorithm::kTree;
  }
  std::vector<Measured> found;
  for (const Json& result : document.at("results")) {
    each.collective.bytes = result.at("size_bytes").get<Bytes>();
    each.time_s = result.at("time_ns").get<double>() * 1e-9;
    found.push_back(each);
  }
  return found;
}

Result<std::vector<Measured>> measurements_of(const Json& document) {
  if (document.contains("op")) return collectives(document);
  const Json info = document.value("test_info", Json::object());
  const bool gigabits = info.value("report_gbits", false);
  std::vector<Measured> found;
  for (const Json& result : document.at("results")) {
    if (const auto one = point_to_point(result, gigabits)) found.push_back(*one);
  }
  return found;
}

}  // namespace

Result<std::vector<Measured>> read_measurements(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, perf::read_text(path));
  try {
    auto found = measurements_of(Json::parse(text));
    if (!found) {
      return fail(found.error().code, fmt::format("'{}' {}", path, found.error().message));
    }
    std::erase_if(*found, [](const Measured& each) {
      return !(each.time_s > 0) || !std::isfinite(each.time_s) || each.collective.bytes == 0;
    });
    if (!found->empty()) return found;
  } catch (const Json::exception&) {  // told below
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' holds no measurements: give what 'pacecar bw --json', 'pacecar "
                          "lat --json' or 'collective_bench --out_json_file' write",
                          path));
}

std::string toml_of(const Calibration& found, size_t measurements) {
  std::vector<double> errors;
  for (const double error : found.errors) errors.push_back(std::abs(error));
  std::ranges::sort(errors);
  const auto& [nic, costs] = std::tie(found.nic, found.costs);
  return fmt::format(
      "# Fitted to {} measurements: median error {:.1f}%, largest {:.1f}%.\n"
      "[nic.\"{}\"]\nrate = \"{:.0f}M\"\nefficiency = {}\nlatency = \"{:.0f}ns\"\n"
      "per_message = \"{:.0f}ns\"\nmtu = {:.0f}\n\n"
      "[protocol.Simple]\nlaunch = \"{:.0f}ns\"\nstep = \"{:.0f}ns\"\n",
      measurements, 100 * errors[errors.size() / 2], 100 * errors.back(), nic.name, nic.rate * 8e-6,
      nic.efficiency, nic.latency_s * 1e9, nic.per_message_s * 1e9, nic.packet_bytes,
      costs.launch_s * 1e9, costs.step_s * 1e9);
}

}  // namespace pacecar::predict
