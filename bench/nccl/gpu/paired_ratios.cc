// Computes ratios from times. A line of standard input has the arm's times, a blank, and the
// baseline's times: seconds, separated by commas, in the order of rounds. For each line the output
// has one of JSON: the geometric mean of baseline / arm, which is how many times as fast the arm
// is, and its 95% interval, by bench/ab's statistics over logarithms. The verdicts, not the
// intervals, are corrected for the number of lines (Holm).
#include <cmath>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ab/statistics.h"

namespace {

using pacecar::ab::PairedResult;

// Negative logarithms, so that faster is greater. Empty when `text` is not a list of positive
// numbers.
std::vector<double> speeds(const std::string& text) {
  std::vector<double> values;
  std::istringstream in(text);
  for (double seconds = 0; in >> seconds && seconds > 0;) {
    values.push_back(-std::log(seconds));
    if (in.get() != ',') return in.eof() ? values : std::vector<double>{};
  }
  return {};
}

void print(const PairedResult& result) {
  std::cout << "{\"n\": " << result.n << ", \"ratio\": " << std::exp(result.difference);
  if (result.interval) {
    std::cout << ", \"low\": " << std::exp(result.interval->low)
              << ", \"high\": " << std::exp(result.interval->high) << ", \"interval\": \""
              << (result.bootstrap ? "bootstrap" : "Student") << '"';
  }
  std::cout << ", \"verdict\": \"" << pacecar::ab::text_of(result.verdict) << "\"}\n";
}

}  // namespace

int main() {
  std::vector<PairedResult> results;
  std::string arm;
  std::string baseline;
  while (std::cin >> arm >> baseline) {
    const std::vector<double> arm_speeds = speeds(arm);
    const std::vector<double> baseline_speeds = speeds(baseline);
    if (arm_speeds.empty() || arm_speeds.size() != baseline_speeds.size()) {
      std::cerr << "not two lists of equally many positive numbers: " << arm << ' ' << baseline
                << '\n';
      return 1;
    }
    results.push_back(pacecar::ab::compare_pairs(arm_speeds, baseline_speeds));
  }
  std::vector<PairedResult*> family;
  for (PairedResult& result : results) family.push_back(&result);
  pacecar::ab::correct_family(family);
  for (const PairedResult& result : results) print(result);
  return 0;
}
