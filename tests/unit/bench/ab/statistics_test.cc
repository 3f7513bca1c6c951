// Figures against published tables, exhaustive enumeration, and simulated coverage.
#include "bench/ab/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "transport/base/prng.h"

namespace pacecar::ab::statistics_test {
namespace {

double uniform(Prng& prng) { return static_cast<double>(prng.next_u64() >> 11) * 0x1p-53; }

double normal(Prng& prng) {
  return std::sqrt(-2 * std::log(1 - uniform(prng))) * std::cos(2 * M_PI * uniform(prng));
}

TEST(Distributions, NormalMatchesTables) {
  EXPECT_NEAR(normal_cdf(0), 0.5, 1e-12);
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-6);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232, 1e-6);
}

TEST(Distributions, StudentMatchesTables) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 1e-3);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.30265, 1e-4);
  EXPECT_NEAR(student_quantile(0.975, 9), 2.26216, 1e-5);
  EXPECT_NEAR(student_quantile(0.995, 30), 2.75000, 1e-4);
  // With one degree of freedom Student's distribution is the Cauchy distribution: a closed form.
  for (const double t : {-40.0, -1.0, -0.2, 0.0, 0.7, 3.0}) {
    EXPECT_NEAR(student_cdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-12) << t;
  }
}

TEST(Describe, QuantilesAreLinearBetweenSamples) {
  const std::vector<double> samples = {4, 1, 3, 2};
  const Description description = describe(samples);
  EXPECT_EQ(description.n, 4u);
  EXPECT_DOUBLE_EQ(description.mean, 2.5);
  EXPECT_DOUBLE_EQ(description.median, 2.5);
  EXPECT_EQ(description.min, 1);
  EXPECT_EQ(description.max, 4);
}

// Enumerates all n^n resamples of a symmetric sample. Bias and acceleration are 0, so the
// interval's ends are the quantiles of the exact distribution at the widened level.
TEST(Bootstrap, IntervalMatchesAllResamplesOfASmallSample) {
  const std::vector<double> samples = {-5, -3, -1, 1, 3, 5};
  std::vector<double> exact;
  for (int code = 0; code < 46656; ++code) {
    double sum = 0;
    for (int rest = code, i = 0; i < 6; ++i, rest /= 6)
      sum += samples[static_cast<size_t>(rest % 6)];
    exact.push_back(sum / 6);
  }
  std::sort(exact.begin(), exact.end());
  const double level = normal_cdf(-student_quantile(0.975, 5) * std::sqrt(6.0 / 5));
  const Interval interval = bootstrap_interval(samples);
  // Means are multiples of 1/3; the sampled quantile may be one of them off.
  EXPECT_NEAR(interval.low, quantile(exact, level), 0.34);
  EXPECT_NEAR(interval.high, quantile(exact, 1 - level), 0.34);
}

TEST(Bootstrap, IntervalIsReproducibleAndScalesWithItsSample) {
  std::vector<double> samples = {1.5, 2.25, 0.5, 3, 2, 1, 2.5};
  const Interval first = bootstrap_interval(samples);
  const Interval again = bootstrap_interval(samples);
  EXPECT_EQ(first.low, again.low);
  EXPECT_EQ(first.high, again.high);
  for (double& sample : samples) sample = sample * 4 + 16;
  const Interval moved = bootstrap_interval(samples);
  EXPECT_NEAR(moved.low, first.low * 4 + 16, 1e-9);
  EXPECT_NEAR(moved.high, first.high * 4 + 16, 1e-9);
}

// The share of intervals that contain the true mean.
template <typename Draw, typename Method>
double coverage(size_t n, double truth, Draw draw, Method method) {
  constexpr int kTrials = 300;
  Prng prng(n);
  int hits = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples(n);
    for (double& sample : samples) sample = draw(prng);
    const Interval interval = method(samples);
    hits += interval.low <= truth && truth <= interval.high;
  }
  return static_cast<double>(hits) / kTrials;
}

// The bounds allow three standard errors of 300 trials: 0.038.
TEST(Bootstrap, IntervalHasItsNominalCoverage) {
  for (const size_t n : {6u, 10u, 30u}) {
    const double share = coverage(n, 0, normal, bootstrap_interval);
    EXPECT_GT(share, 0.91) << n;
    EXPECT_LT(share, 0.99) << n;
  }
  // Skewed samples are harder.
  const auto exponential = [](Prng& prng) { return -std::log(1 - uniform(prng)); };
  EXPECT_GT(coverage(30, 1, exponential, bootstrap_interval), 0.89);
}

TEST(StudentInterval, IntervalHasItsNominalCoverage) {
  for (const size_t n : {2u, 3u, 5u}) {
    const double share = coverage(n, 0, normal, student_interval);
    EXPECT_GT(share, 0.91) << n;
    EXPECT_LT(share, 0.99) << n;
  }
}

TEST(ComparePairs, FiguresMatchAWorkedExample) {
  // Differences 1, 2, 3, 4: mean 2.5, deviation 1.290994, t = 3.872983 with 3 degrees of freedom.
  const std::vector<double> arm = {11, 22, 33, 44};
  const std::vector<double> baseline = {10, 20, 30, 40};
  const PairedResult result = compare_pairs(arm, baseline);
  EXPECT_EQ(result.n, 4u);
  EXPECT_DOUBLE_EQ(result.difference, 2.5);
  EXPECT_FALSE(result.cohens_d);  // of few pairs
  EXPECT_NEAR(*result.p, 0.030466, 1e-5);
  EXPECT_FALSE(result.bootstrap);
  EXPECT_NEAR(result.interval->low, 2.5 - 3.182446 * 0.645497, 1e-5);
  EXPECT_EQ(result.verdict, Verdict::kHigher);
}

// Without a difference all sign patterns are equally likely. The t test must agree with the test
// that enumerates them.
TEST(ComparePairs, PValueMatchesTheSignFlipTest) {
  const std::vector<double> baseline(10, 0.0);
  const std::vector<double> arm = {0.6, -0.4, 1.1, 0.9, -0.1, 0.7, 0.3, 1.4, -0.6, 0.8};
  const double mean = std::accumulate(arm.begin(), arm.end(), 0.0);
  int as_extreme = 0;
  for (unsigned signs = 0; signs < 1024; ++signs) {
    double sum = 0;
    for (unsigned i = 0; i < 10; ++i) sum += (signs >> i & 1) != 0 ? arm[i] : -arm[i];
    as_extreme += std::abs(sum) >= std::abs(mean) - 1e-12;
  }
  EXPECT_NEAR(*compare_pairs(arm, baseline).p, as_extreme / 1024.0, 0.02);
}

TEST(ComparePairs, OnePairGivesNoInterval) {
  const PairedResult result = compare_pairs(std::vector{2.0}, std::vector{1.0});
  EXPECT_EQ(result.n, 1u);
  EXPECT_EQ(result.difference, 1);
  EXPECT_FALSE(result.interval || result.p || result.cohens_d);
  EXPECT_EQ(result.verdict, Verdict::kOnePair);
}

// Six pairs give one, unless their differences hardly vary.
TEST(ComparePairs, EffectSizeIsGivenWhereItMeansSomething) {
  const std::vector<double> baseline(6, 0.0);
  const std::vector<double> arm = {1, 2, 3, 4, 5, 6};
  EXPECT_NEAR(*compare_pairs(arm, baseline).cohens_d, 3.5 / std::sqrt(3.5), 1e-9);
  const std::vector<double> steady = {1000, 1001, 1002, 1003, 1004, 1005};
  EXPECT_FALSE(compare_pairs(steady, baseline).cohens_d);
  EXPECT_EQ(compare_pairs(steady, baseline).verdict, Verdict::kHigher);
}

TEST(ComparePairs, EqualDifferencesGiveNoInterval) {
  const std::vector<double> samples = {1, 2, 3};
  EXPECT_EQ(compare_pairs(samples, samples).verdict, Verdict::kEqual);
  const PairedResult shifted = compare_pairs(std::vector{3.0, 4.0, 5.0}, samples);
  EXPECT_EQ(shifted.verdict, Verdict::kConstant);
  EXPECT_EQ(shifted.difference, 2);
  EXPECT_FALSE(shifted.interval || shifted.p || shifted.cohens_d);
}

TEST(ComparePairs, IntervalAcrossZeroShowsNoDifference) {
  const std::vector<double> baseline(8, 5.0);
  const std::vector<double> arm = {5.5, 4.4, 5.2, 4.9, 5.6, 4.5, 5.1, 4.8};
  const PairedResult result = compare_pairs(arm, baseline);
  EXPECT_LT(result.interval->low, 0);
  EXPECT_GT(result.interval->high, 0);
  EXPECT_TRUE(result.bootstrap);
  EXPECT_EQ(result.verdict, Verdict::kNotShown);
}

TEST(Holm, CorrectionStepsDown) {
  const std::vector<double> corrected = holm(std::vector{0.01, 0.04, 0.03, 0.005});
  EXPECT_NEAR(corrected[0], 0.03, 1e-12);
  EXPECT_NEAR(corrected[1], 0.06, 1e-12);
  EXPECT_NEAR(corrected[2], 0.06, 1e-12);
  EXPECT_NEAR(corrected[3], 0.02, 1e-12);
  EXPECT_EQ(holm(std::vector{0.9, 0.8})[0], 1);
}

// The interval is of one comparison alone, and excludes 0 then: the verdict says so.
TEST(Family, CorrectionWithdrawsAVerdict) {
  const std::vector<double> baseline = {10, 20, 30, 40};
  PairedResult shown = compare_pairs(std::vector{11.0, 22.0, 33.0, 44.0}, baseline);
  ASSERT_EQ(shown.verdict, Verdict::kHigher);
  PairedResult other = compare_pairs(std::vector{10.5, 19.0, 30.5, 40.0}, baseline);
  PairedResult untested = compare_pairs(baseline, baseline);
  std::vector<PairedResult*> family = {&shown, &other, &untested};
  correct_family(family);
  EXPECT_NEAR(*shown.p_holm, 2 * *shown.p, 1e-12);  // the family has two tested pairs
  EXPECT_GT(shown.interval->low, 0);
  EXPECT_EQ(shown.verdict, Verdict::kHigherAlone);
  EXPECT_EQ(text_of(shown.verdict), "higher alone, not shown among all tests");
  EXPECT_EQ(other.verdict, Verdict::kNotShown);
  EXPECT_FALSE(untested.p_holm);
}

}  // namespace
}  // namespace pacecar::ab::statistics_test
