#include "bench/check/findings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pacecar::check {
namespace {

using Json = nlohmann::json;

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kNotOffered:
      break;
  }
  return "-";
}

std::string_view json_name_of(Verdict verdict) {
  return verdict == Verdict::kFail ? "fail" : verdict == Verdict::kPass ? "pass" : "not offered";
}

}  // namespace

std::string line_of(const Finding& finding, size_t width) {
  const Outcome& outcome = finding.outcome;
  const std::string detail = outcome.detail.empty() ? "" : fmt::format(": {}", outcome.detail);
  return fmt::format("v{:<3} {:<5} {:<{}}  {}{}", finding.version, name_of(outcome.verdict),
                     finding.rule, width, finding.sentence, detail);
}

std::string lines_of(const Figures& figures) {
  std::string lines;
  if (!figures.stream.empty()) {
    const Json stream = Json::parse(figures.stream);
    lines += fmt::format(
        "v{:<3} stream    {} B x {}: {:.2f} Gb/s, {:.0f} messages/s, CPU s per GB: sender {:.2f}, "
        "receiver {:.2f}\n",
        figures.version, stream.at("size_bytes").get<uint64_t>(),
        stream.at("in_flight").get<uint64_t>(), stream.at("gbps").get<double>(),
        stream.at("messages_per_s").get<double>(), stream.at("sender_cpu_s_per_gb").get<double>(),
        stream.at("receiver_cpu_s_per_gb").get<double>());
  }
  if (!figures.latency.empty()) {
    const Json latency = Json::parse(figures.latency);
    lines += fmt::format(
        "v{:<3} latency   8 B, half a round trip in us: least {:.1f}, median {:.1f}, p99 {:.1f}, "
        "p99.9 {:.1f}, most {:.1f}\n",
        figures.version, latency.at("min_us").get<double>(), latency.at("p50_us").get<double>(),
        latency.at("p99_us").get<double>(), latency.at("p99_9_us").get<double>(),
        latency.at("max_us").get<double>());
  }
  if (!figures.trouble.empty()) {
    lines += fmt::format("v{:<3} not measured: {}\n", figures.version, figures.trouble);
  }
  return lines;
}

Json to_json(const std::string& plugin, const std::vector<Finding>& findings,
             const std::vector<Figures>& figures) {
  Json rules = Json::array();
  for (const Finding& one : findings) {
    rules.push_back({{"version", one.version},
                     {"rule", one.rule},
                     {"sentence", one.sentence},
                     {"verdict", json_name_of(one.outcome.verdict)},
                     {"detail", one.outcome.detail}});
  }
  Json measured = Json::array();
  for (const Figures& one : figures) {
    Json entry = {{"version", one.version}};
    if (!one.stream.empty()) entry["stream"] = Json::parse(one.stream);
    if (!one.latency.empty()) entry["latency"] = Json::parse(one.latency);
    if (!one.trouble.empty()) entry["trouble"] = one.trouble;
    measured.push_back(entry);
  }
  return {{"schema_version", 1}, {"plugin", plugin}, {"rules", rules}, {"performance", measured}};
}

}  // namespace pacecar::check
