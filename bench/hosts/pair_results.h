// The results of all pairs: matrix, outliers and failures, as text and as a document. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/hosts/matrix.h"
#include "bench/hosts/pair_runner.h"
#include "bench/hosts/targets.h"

namespace pacecar::hosts {

inline constexpr int kMatrixSchema = 1;

// "bw", "lat". `both_ways`: the figure holds for both directions together (-b).
Quantity quantity_of(const std::string& test, bool both_ways);

// The figure of one measurement: Gb/s of bw, of the largest size; half a round trip in microseconds
// of lat (t_typical), of the smallest size. nullopt: it has none.
std::optional<double> figure_of(const std::string& test, const nlohmann::json& results);

class PairResults {
 public:
  PairResults(std::vector<Host> hosts, std::string test, bool both_ways);

  void add(Measurement measurement);
  // Adds a lost host.
  void lose(size_t host, const std::string& why) { lost_.emplace_back(host, why); }

  size_t measured() const { return matrix_.all().size(); }
  // No host is lost, and no pair has failed.
  bool complete() const;
  bool thresholds_met(double least) const { return missed(least).empty(); }

  // The matrix, and a sentence for each problem.
  std::string text(double least) const;
  // `context` has further members: the requested test, the date and the duration.
  nlohmann::json document(double least, const nlohmann::json& context) const;

 private:
  std::string arrow(const Pair& pair) const;  // "a -> b"
  std::vector<std::string> failures() const;
  std::vector<std::string> missed(double least) const;

  std::vector<Host> hosts_;
  std::vector<std::string> names_;
  std::string test_;
  Quantity quantity_;
  Matrix matrix_;
  std::vector<Measurement> all_;
  std::vector<std::pair<size_t, std::string>> lost_;
};

}  // namespace pacecar::hosts
