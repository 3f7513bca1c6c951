#include "bench/ab/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "transport/base/check.h"
#include "transport/base/prng.h"

namespace pacecar::ab {
namespace {

// Continued fraction of the incomplete beta function, summed from the front (Lentz's method).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr double kEpsilon = 1e-15;
  constexpr int kMaxTerms = 10'000;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m < kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1) < kEpsilon) break;
  }
  return fraction;
}

// The regularised incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast on this side of the mean only.
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

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

double cliffs_delta(std::span<const double> arm, std::span<const double> baseline) {
  int64_t wins = 0;
  for (const double a : arm) {
    for (const double b : baseline) wins += (a > b) - (a < b);
  }
  return static_cast<double>(wins) / static_cast<double>(arm.size() * baseline.size());
}

Verdict judge(const PairedResult& result) {
  if (*result.p_holm > kSignificant) return Verdict::kNotShown;
  if (result.interval->low > 0) return Verdict::kHigher;
  if (result.interval->high < 0) return Verdict::kLower;
  return Verdict::kNotShown;
}

}  // namespace

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double normal_quantile(double p) { return invert(normal_cdf, p); }

double student_cdf(double t, double degrees) {
  const double tail = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double degrees) {
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
  const double reach = student_quantile(1 - kTail, n - 1) * std::sqrt(n / (n - 1));
  const auto end = [&](double z) {
    const double shifted = bias + z;
    // The BCa denominator is kept positive. Beyond its zero the endpoint is the most extreme
    // resample.
    const double bend = std::max(1 - skew * shifted, 1e-9);
    return quantile(means, normal_cdf(bias + shifted / bend));
  };
  return {end(-reach), end(reach)};
}

Interval student_interval(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  const double mean = mean_of(differences);
  const double reach =
      student_quantile(1 - kTail, n - 1) * deviation_of(differences, mean) / std::sqrt(n);
  return {mean - reach, mean + reach};
}

std::string_view text_of(Verdict verdict) {
  constexpr std::string_view kTexts[] = {"one pair: no interval",
                                         "equal in every pair",
                                         "the same difference in every pair: no interval",
                                         "no difference shown",
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
  const bool enough = result.n >= kEffectPairs;
  if (enough) result.cliffs_delta = cliffs_delta(arm, baseline);
  if (std::ranges::count(differences, differences[0]) == std::ssize(differences)) {
    result.verdict = differences[0] == 0 ? Verdict::kEqual : Verdict::kConstant;
    return result;
  }
  result.bootstrap = result.n >= kBootstrapPairs;
  result.interval =
      result.bootstrap ? bootstrap_interval(differences) : student_interval(differences);
  const auto n = static_cast<double>(result.n);
  const double d = result.difference / deviation_of(differences, result.difference);
  if (enough) result.cohens_d = d;
  result.p = 2 * student_cdf(-std::abs(d) * std::sqrt(n), n - 1);
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
