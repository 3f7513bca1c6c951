// Statistics of a few samples. A pair is one sample of each of two arms under the same seed (of
// real programs: in the same block), so that the seed's effect on both cancels out.
//
// The interval of the mean difference is a bootstrap over pairs: bias-corrected and accelerated
// (Efron, "Better bootstrap confidence intervals", 1987), its levels widened for small n
// (Hesterberg, "What teachers should know about the bootstrap", 2014). With fewer than six pairs
// the resamples do not reach a level of 95%, and the interval is Student's. Pure; the same samples
// give the same figures.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pacecar::ab {

// P(Z <= z) for a standard normal Z, and its inverse for p in (0, 1).
double normal_cdf(double z);
double normal_quantile(double p);

// P(T <= t) for Student's t with `degrees` > 0 degrees of freedom, and its inverse.
double student_cdf(double t, int degrees);
double student_quantile(double p, int degrees);

struct Description {
  size_t n = 0;
  double mean = 0;
  double median = 0;
  double min = 0;
  double max = 0;
};
// `samples` is not empty.
Description describe(std::span<const double> samples);

// Linear between order statistics; `sorted` is sorted and not empty, q in [0, 1].
double quantile(std::span<const double> sorted, double q);

struct Interval {
  double low = 0;
  double high = 0;
};

inline constexpr size_t kBootstrapPairs = 6;  // fewer: Student's interval, no effect size
// Beyond it the differences hardly vary, and an effect size says nothing.
inline constexpr double kMostEffect = 10;
inline constexpr size_t kResamples = 10'000;

// 95%, of the mean. `differences` has two or more values that are not all equal.
Interval bootstrap_interval(std::span<const double> differences);
Interval student_interval(std::span<const double> differences);

enum class Verdict {
  kOnePair,     // chance cannot be estimated
  kEqual,       // equal in every pair
  kConstant,    // the same difference in every pair: seeds change nothing, there is no interval
  kNotShown,    // the interval spans 0
  kLowerAlone,  // the interval excludes 0, but the corrected p is above 0.05
  kHigherAlone,
  kLower,  // the arm is below the baseline
  kHigher,
};
std::string_view text_of(Verdict verdict);

struct PairedResult {
  size_t n = 0;
  double arm_mean = 0;
  double baseline_mean = 0;
  double difference = 0;  // mean of arm - baseline
  // Optional figures are absent for a single pair, or if all differences are equal.
  std::optional<Interval> interval;
  bool bootstrap = false;  // the interval's kind; false: Student's
  // Mean difference / standard deviation of the differences; none with few pairs, and none beyond
  // kMostEffect.
  std::optional<double> cohens_d;
  std::optional<double> p;       // two-sided paired t test
  std::optional<double> p_holm;  // corrected: see correct_family()
  Verdict verdict = Verdict::kOnePair;
};
// Sample i of both belongs to pair i; at least one pair. The verdict holds for a family of one.
PairedResult compare_pairs(std::span<const double> arm, std::span<const double> baseline);

// Holm's step-down correction of p-values, in their order.
std::vector<double> holm(std::span<const double> p);
// Corrects the p-values and verdicts of results that are tested together.
void correct_family(std::span<PairedResult* const> family);

}  // namespace pacecar::ab
