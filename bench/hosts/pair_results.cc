#include "bench/hosts/pair_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/json_fields.h"
#include "bench/hosts/outliers.h"

namespace pacecar::hosts {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quantity, name, unit, more_is_better)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SlowHost, host, sends, receives, value)

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLines = 10;  // of one kind; further ones are only counted
constexpr double kMaxFigure = 1e15;

void cut(std::vector<std::string>& lines, std::string_view what) {
  if (lines.size() <= kMaxLines) return;
  const size_t more = lines.size() - kMaxLines;
  lines.resize(kMaxLines);
  lines.push_back(fmt::format("and {} more {}", more, what));
}

// A figure relative to a typical one; below 1: worse.
double share_of(double value, double typical, const Quantity& quantity) {
  return quantity.more_is_better ? value / typical : typical / value;
}

}  // namespace

Quantity quantity_of(const std::string& test, bool both_ways) {
  if (test == "lat") return {"half a round trip", "us", false};
  return {both_ways ? "bandwidth of both directions together" : "bandwidth", "Gb/s", true};
}

std::optional<double> figure_of(const std::string& test, const Json& results) {
  const bool lat = test == "lat";
  if (results.is_array() && results.empty()) return std::nullopt;
  const Json& one = !results.is_array() ? results : lat ? results.front() : results.back();
  const auto number = [&](const char* key) {  // 0: it is missing
    return cli::number_field(one, key, 0, kMaxFigure).value_or(0);
  };
  const double seconds = number("seconds");
  const double gbps = seconds > 0 ? number("bytes") * 8 / seconds / 1e9 : 0;
  const double value = lat ? number("t_typical") : gbps;
  return value > 0 ? std::optional(value) : std::nullopt;
}

PairResults::PairResults(std::vector<Host> hosts, std::string test, bool both_ways)
    : hosts_(std::move(hosts)),
      test_(std::move(test)),
      quantity_(quantity_of(test_, both_ways)),
      matrix_(hosts_.size()) {
  for (const Host& host : hosts_) names_.push_back(host.name);
}

void PairResults::add(Measurement measurement) {
  const auto value = figure_of(test_, measurement.results);
  if (value) {
    matrix_.set(measurement.pair.sender, measurement.pair.receiver, *value);
  } else if (measurement.error.empty()) {
    measurement.error = "no message arrived: run 'pacecar bw' between the two hosts by hand";
  }
  all_.push_back(std::move(measurement));
}

bool PairResults::complete() const {
  return lost_.empty() && std::ranges::all_of(all_, &std::string::empty, &Measurement::error);
}

std::string PairResults::arrow(const Pair& pair) const {
  return fmt::format("{} -> {}", names_[pair.sender], names_[pair.receiver]);
}

// One sentence for a host with which everything failed.
std::vector<std::string> PairResults::failures() const {
  std::vector<std::string> sentences;
  std::vector<const Measurement*> tried, left;
  for (const Measurement& one : all_) {
    tried.push_back(&one);
    if (!one.error.empty()) left.push_back(&one);
  }
  const auto with = [](size_t host) {
    return [host](const Measurement* one) {
      return one->pair.sender == host || one->pair.receiver == host;
    };
  };
  for (const auto& [host, why] : lost_) {
    sentences.push_back(fmt::format("{} is lost: {}", names_[host], why));
    std::erase_if(tried, with(host));
    std::erase_if(left, with(host));
  }
  for (size_t host = 0; host < hosts_.size(); ++host) {
    const auto failed = std::ranges::count_if(left, with(host));
    if (failed < 3 || failed != std::ranges::count_if(tried, with(host))) continue;
    const Measurement& first = **std::ranges::find_if(left, with(host));
    sentences.push_back(fmt::format("{}: all {} measurements with it failed, the first with: {}",
                                    names_[host], failed, first.error));
    std::erase_if(left, with(host));
  }
  for (const Measurement* one : left) {
    sentences.push_back(fmt::format("{} failed: {}", arrow(one->pair), one->error));
  }
  cut(sentences, "failed");
  return sentences;
}

std::vector<std::string> PairResults::missed(double least) const {
  std::vector<std::string> sentences;
  const double typical = find_outliers(matrix_, quantity_).typical;
  for (const Measurement& one : all_) {
    if (!one.missed.empty()) sentences.push_back(arrow(one.pair) + ": " + one.missed);
    const auto& value = matrix_.at(one.pair.sender, one.pair.receiver);
    if (!value || share_of(*value, typical, quantity_) >= least) continue;
    sentences.push_back(fmt::format("{} misses --least {:g}: {}", arrow(one.pair), least,
                                    compared_with("a typical pair", *value, typical, quantity_)));
  }
  cut(sentences, "miss a threshold");
  return sentences;
}

std::string PairResults::text(double least) const {
  std::string text;
  const Outliers outliers = find_outliers(matrix_, quantity_);
  if (const std::vector<double> values = matrix_.all(); !values.empty()) {
    text = fmt::format("{}\nmedian {} {}, from {} to {}; a typical pair {}\n",
                       to_text(matrix_, names_, quantity_), figure(median(values)), quantity_.unit,
                       figure(*std::ranges::min_element(values)),
                       figure(*std::ranges::max_element(values)), figure(outliers.typical));
  }
  std::vector<std::string> slow = sentences_of(outliers, names_, quantity_);
  cut(slow, "out of line");
  for (const auto& lines : {slow, missed(least), failures()}) {
    for (const std::string& line : lines) text += fmt::format("! {}\n", line);
  }
  const bool judged = hosts_.size() >= kFewestHosts && measured() >= 2 * hosts_.size();
  if (judged && slow.empty()) text += "no host and no pair is out of line\n";
  return text;
}

Json PairResults::document(double least, const Json& context) const {
  const Outliers outliers = find_outliers(matrix_, quantity_);
  Json document = context;
  document["schema_version"] = kMatrixSchema;
  document["version"] = PACECAR_VERSION;
  document["quantity"] = quantity_;
  const std::vector<double> values = matrix_.all();
  document["median"] = values.empty() ? Json() : Json(median(values));
  document["typical"] = values.empty() ? Json() : Json(outliers.typical);
  document["hosts"] = Json::array();
  for (const Host& host : hosts_) {
    document["hosts"].push_back({{"name", host.name}, {"address", host.address}, {"lost", ""}});
  }
  for (const auto& [host, why] : lost_) document["hosts"][host]["lost"] = why;
  document["pairs"] = Json::array();
  for (const Measurement& one : all_) {
    const auto& value = matrix_.at(one.pair.sender, one.pair.receiver);
    document["pairs"].push_back({{"sender", one.pair.sender},
                                 {"receiver", one.pair.receiver},
                                 {"value", value ? Json(*value) : Json()},
                                 {"error", one.error},
                                 {"warnings", one.warnings},
                                 {"results", one.results}});
  }
  document["slow_hosts"] = outliers.hosts;
  document["slow_pairs"] = Json::array();
  for (const SlowPair& pair : outliers.pairs) {
    document["slow_pairs"].push_back({{"sender", pair.pair.sender},
                                      {"receiver", pair.pair.receiver},
                                      {"value", pair.value},
                                      {"expected", pair.expected}});
  }
  document["outliers"] = sentences_of(outliers, names_, quantity_);
  document["missed"] = missed(least);
  document["failures"] = failures();
  return document;
}

}  // namespace pacecar::hosts
