#include "bench/ab/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "transport/base/check.h"
#include "transport/base/prng.h"

namespace pacecar::ab {
namespace {

// The x at which the rising function `cdf` is p.
template <typename Cdf>
double invert(Cdf cdf, double p) {
  double low = -1;
  double high = 1;
  while (cdf(low) > p) low *= 2;
  while (cdf(high) < p) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (cdf(middle) < p ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

constexpr double kTail = 0.025;  // on either side of a 95% interval
constexpr double kSignificant = 0.05;
constexpr uint64_t kBootstrapSeed = 0x5eed;

double mean_of(std::span<const double> samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

int degrees_of(std::span<const double> samples) { return static_cast<int>(samples.size()) - 1; }

double deviation_of(std::span<const double> samples, double mean) {
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

std::vector<double> resampled_means(std::span<const double> samples) {
  Prng prng(kBootstrapSeed);
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    double sum = 0;
    for (size_t i = 0; i < samples.size(); ++i) sum += samples[prng.below(samples.size())];
    mean = sum / static_cast<double>(samples.size());
  }
  std::sort(means.begin(), means.end());
  return means;
}

// BCa acceleration constant, by the jackknife.
double acceleration(std::span<const double> samples, double mean) {
  double squares = 0;
  double cubes = 0;
  for (const double sample : samples) {
    const double influence = sample - mean;
    squares += influence * influence;
    cubes += influence * influence * influence;
  }
  return cubes / (6 * std::pow(squares, 1.5));
}

Verdict judge(const PairedResult& result) {
  const bool alone = *result.p_holm > kSignificant;
  if (result.interval->low > 0) return alone ? Verdict::kHigherAlone : Verdict::kHigher;
  if (result.interval->high < 0) return alone ? Verdict::kLowerAlone : Verdict::kLower;
  return Verdict::kNotShown;
}

}  // namespace

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double normal_quantile(double p) { return invert(normal_cdf, p); }

// Abramowitz and Stegun, 26.7.3 and 26.7.4: a finite series in cos^2.
double student_cdf(double t, int degrees) {
  const double angle = std::atan(t / std::sqrt(degrees));
  const double cosine = std::cos(angle);
  double sum = 0;
  double term = degrees % 2 == 0 ? 1 : cosine;
  for (int i = degrees % 2; i < degrees - 1; i += 2) {
    sum += term;
    term *= cosine * cosine * (i + 1) / (i + 2);
  }
  const double within = degrees % 2 == 0 ? std::sin(angle) * sum
                                         : (angle + std::sin(angle) * sum) * 2 / std::numbers::pi;
  return std::clamp(0.5 + within / 2, 0.0, 1.0);
}

double student_quantile(double p, int degrees) {
  return invert([degrees](double t) { return student_cdf(t, degrees); }, p);
}

double quantile(std::span<const double> sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Description describe(std::span<const double> samples) {
  PACECAR_CHECK(!samples.empty());
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {sorted.size(), mean_of(samples), quantile(sorted, 0.5), sorted.front(), sorted.back()};
}

Interval bootstrap_interval(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  const double mean = mean_of(differences);
  const std::vector<double> means = resampled_means(differences);
  const auto [first, last] = std::equal_range(means.begin(), means.end(), mean);
  // A resample equal to the mean counts half. The clamp keeps normal_quantile() finite.
  const double share =
      static_cast<double>((first - means.begin()) + (last - means.begin())) / 2 / kResamples;
  const double bias = normal_quantile(std::clamp(share, 0.5 / kResamples, 1 - 0.5 / kResamples));
  const double skew = acceleration(differences, mean);
  const double reach =
      student_quantile(1 - kTail, degrees_of(differences)) * std::sqrt(n / (n - 1));
  const auto end = [&](double z) {
    const double shifted = bias + z;
    // The BCa denominator is kept positive. Past its zero: the most extreme resample.
    const double bend = std::max(1 - skew * shifted, 1e-9);
    return quantile(means, normal_cdf(bias + shifted / bend));
  };
  return {end(-reach), end(reach)};
}

Interval student_interval(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  const double mean = mean_of(differences);
  const double reach = student_quantile(1 - kTail, degrees_of(differences)) *
                       deviation_of(differences, mean) / std::sqrt(n);
  return {mean - reach, mean + reach};
}

std::string_view text_of(Verdict verdict) {
  constexpr std::string_view kTexts[] = {"one pair: no interval",
                                         "equal in every pair",
                                         "the same difference in every pair: no interval",
                                         "no difference shown",
                                         "lower alone, not shown among all tests",
                                         "higher alone, not shown among all tests",
                                         "lower",
                                         "higher"};
  return kTexts[static_cast<size_t>(verdict)];
}

PairedResult compare_pairs(std::span<const double> arm, std::span<const double> baseline) {
  PACECAR_CHECK(!arm.empty() && arm.size() == baseline.size());
  PairedResult result;
  result.n = arm.size();
  result.arm_mean = mean_of(arm);
  result.baseline_mean = mean_of(baseline);
  std::vector<double> differences(arm.size());
  std::transform(arm.begin(), arm.end(), baseline.begin(), differences.begin(), std::minus<>());
  result.difference = mean_of(differences);
  if (result.n == 1) return result;
  if (std::ranges::count(differences, differences[0]) == std::ssize(differences)) {
    result.verdict = differences[0] == 0 ? Verdict::kEqual : Verdict::kConstant;
    return result;
  }
  result.bootstrap = result.n >= kBootstrapPairs;
  result.interval =
      result.bootstrap ? bootstrap_interval(differences) : student_interval(differences);
  const auto n = static_cast<double>(result.n);
  const double d = result.difference / deviation_of(differences, result.difference);
  if (result.bootstrap && std::abs(d) <= kMostEffect) result.cohens_d = d;
  result.p = 2 * student_cdf(-std::abs(d) * std::sqrt(n), degrees_of(differences));
  result.p_holm = result.p;
  result.verdict = judge(result);
  return result;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> corrected(p.size());
  double least = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<double>(order.size() - rank);
    least = std::max(least, std::min(1.0, p[order[rank]] * left));
    corrected[order[rank]] = least;
  }
  return corrected;
}

void correct_family(std::span<PairedResult* const> family) {
  std::vector<PairedResult*> tested;
  std::vector<double> p;
  for (PairedResult* result : family) {
    if (!result->p) continue;
    tested.push_back(result);
    p.push_back(*result->p);
  }
  const std::vector<double> corrected = holm(p);
  for (size_t i = 0; i < tested.size(); ++i) {
    tested[i]->p_holm = corrected[i];
    tested[i]->verdict = judge(*tested[i]);
  }
}

}  // namespace pacecar::ab
