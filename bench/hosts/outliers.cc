#include "bench/hosts/outliers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace pacecar::hosts {
namespace {

constexpr double kStandardDeviation = 1.4826;  // of a normal distribution, in its MADs
constexpr double kFewFree = 4;                 // sparse: less than one in this many figures is free
constexpr size_t kGroup = 3;  // from this many on, pairs of one host share a sentence

double score(double value, const Quantity& quantity) {
  return quantity.more_is_better ? std::log(value) : -std::log(value);
}

double value_of(double score, const Quantity& quantity) {
  return std::exp(quantity.more_is_better ? score : -score);
}

// The median's score, of two in the middle the better one; nullopt: nothing was measured.
std::optional<double> better_median(std::vector<double> values, const Quantity& quantity) {
  if (values.empty()) return std::nullopt;
  for (double& value : values) value = score(value, quantity);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double deviation_of(std::vector<double> scores, double centre) {
  for (double& one : scores) one = std::abs(one - centre);
  return kStandardDeviation * median(std::move(scores));
}

// The distance below the centre from which on a figure is an outlier.
double limit_of(double deviation) {
  return std::max(-std::log(1 - kDifference), kDeviations * deviation);
}

// Degrees of freedom: the number of figures minus the number of fitted parameters.
double free_figures(size_t figures, size_t hosts) {
  return std::max(1.0, static_cast<double>(figures) - 2 * static_cast<double>(hosts) + 1);
}

// Corrects the residuals' deviation, which is too small: rows and columns fit the noise, and few
// figures estimate it badly, as in Student's distribution.
double small_sample_factor(size_t figures, size_t hosts) {
  const double free = free_figures(figures, hosts);
  return std::sqrt(static_cast<double>(figures) / free) * (1 + 3 / free);
}

struct Typical {
  size_t hosts = 0;  // that were measured
  std::vector<std::optional<double>> sends;
  std::vector<std::optional<double>> receives;
  double centre = 0;
  double limit = 0;
  std::vector<SlowPair> pairs;    // all, not only slow ones
  std::vector<double> residuals;  // of each pair, relative to the slower of its hosts
  double noise = 0;               // of one pair: the standard deviation of a residual
  bool sparse = false;            // hardly more figures than hosts: a ring, or three hosts

  bool slow(const std::optional<double>& score) const { return score && *score < centre - limit; }
};

void add_residuals(const Matrix& matrix, const Quantity& quantity, Typical& typical) {
  for (size_t i = 0; i < matrix.hosts(); ++i) {
    for (size_t j = 0; j < matrix.hosts(); ++j) {
      const auto& value = matrix.at(i, j);
      if (!value) continue;
      const double expected = std::min(*typical.sends[i], *typical.receives[j]);
      typical.residuals.push_back(score(*value, quantity) - expected);
      typical.pairs.push_back({{i, j}, *value, value_of(expected, quantity)});
    }
  }
  const size_t figures = typical.pairs.size();
  typical.sparse = kFewFree * free_figures(figures, typical.hosts) < static_cast<double>(figures);
  typical.noise = deviation_of(typical.residuals, median(typical.residuals)) *
                  small_sample_factor(figures, typical.hosts);
  if (!typical.sparse) return;
  // Half of the residuals are 0, so the scatter of all figures estimates the noise.
  std::vector<double> scores;
  for (const SlowPair& pair : typical.pairs) scores.push_back(score(pair.value, quantity));
  typical.noise = deviation_of(scores, median(scores));
}

Typical typical_of(const Matrix& matrix, const Quantity& quantity) {
  Typical typical;
  std::vector<double> known;
  for (size_t i = 0; i < matrix.hosts(); ++i) {
    typical.sends.push_back(better_median(matrix.row(i), quantity));
    typical.receives.push_back(better_median(matrix.column(i), quantity));
    if (typical.sends.back()) known.push_back(*typical.sends.back());
    if (typical.receives.back()) known.push_back(*typical.receives.back());
    if (typical.sends.back() || typical.receives.back()) ++typical.hosts;
  }
  typical.centre = median(known);
  add_residuals(matrix, quantity, typical);
  const double of_hosts = deviation_of(known, typical.centre);
  // With few hosts some of these agree by chance, so its error is at least its measurements'.
  const double peers = static_cast<double>(typical.hosts - 1);
  const double of_pairs = typical.sparse ? 0 : typical.noise / std::sqrt(peers);
  typical.limit = limit_of(std::max(of_hosts, of_pairs));
  return typical;
}

std::optional<SlowHost> slow_host(const Matrix& matrix, const Typical& typical, size_t host,
                                  const Quantity& quantity) {
  SlowHost slow{.host = host,
                .sends = typical.slow(typical.sends[host]),
                .receives = typical.slow(typical.receives[host])};
  if (!slow.sends && !slow.receives) return std::nullopt;
  double worst = typical.centre;
  if (slow.sends) worst = std::min(worst, *typical.sends[host]);
  if (slow.receives) worst = std::min(worst, *typical.receives[host]);
  slow.value = value_of(worst, quantity);
  const auto is_slow = [&](const std::optional<double>& value) {
    return value && typical.slow(score(*value, quantity));
  };
  for (size_t peer = 0; peer < matrix.hosts(); ++peer) {
    const auto& out = matrix.at(host, peer);
    const auto& in = matrix.at(peer, host);
    slow.peers += (slow.sends && out) || (slow.receives && in) ? 1 : 0;
    slow.slow_peers += (slow.sends && is_slow(out)) || (slow.receives && is_slow(in)) ? 1 : 0;
  }
  return slow;
}

std::vector<SlowPair> slow_pairs(const Typical& typical) {
  const double limit = median(typical.residuals) - limit_of(typical.noise);
  std::vector<SlowPair> slow;
  for (size_t i = 0; i < typical.pairs.size(); ++i) {
    if (typical.residuals[i] < limit) slow.push_back(typical.pairs[i]);
  }
  return slow;
}

std::string how_slow(const SlowHost& host) {
  const std::string_view how = host.sends && host.receives ? "is slow in both directions with"
                               : host.sends                ? "sends slowly to"
                                                           : "receives slowly from";
  if (host.slow_peers >= host.peers) return fmt::format("{} every peer", how);
  return fmt::format("{} {} of {} peers", how, host.slow_peers, host.peers);
}

// Takes all pairs that the host sends, or receives, out of `pairs`, if enough for a sentence.
std::vector<SlowPair> take_group(std::vector<SlowPair>& pairs, size_t host, bool by_sender) {
  const auto of_host = [&](const SlowPair& one) {
    return (by_sender ? one.pair.sender : one.pair.receiver) == host;
  };
  std::vector<SlowPair> group;
  std::ranges::copy_if(pairs, std::back_inserter(group), of_host);
  if (group.size() < kGroup) return {};
  std::erase_if(pairs, of_host);
  return group;
}

}  // namespace

Outliers find_outliers(const Matrix& matrix, const Quantity& quantity) {
  Outliers outliers;
  const std::vector<double> all = matrix.all();
  if (all.empty()) return outliers;
  outliers.typical = median(all);
  const Typical typical = typical_of(matrix, quantity);
  if (typical.hosts < kFewestHosts) return outliers;
  for (size_t host = 0; host < matrix.hosts(); ++host) {
    if (auto slow = slow_host(matrix, typical, host, quantity)) outliers.hosts.push_back(*slow);
  }
  outliers.typical = value_of(typical.centre, quantity);
  outliers.pairs = slow_pairs(typical);
  return outliers;
}

std::vector<std::string> sentences_of(const Outliers& outliers,
                                      const std::vector<std::string>& names,
                                      const Quantity& quantity) {
  std::vector<std::string> sentences;
  const auto compared = [&](double value) {
    return compared_with("a typical pair", value, outliers.typical, quantity);
  };
  for (const SlowHost& host : outliers.hosts) {
    sentences.push_back(
        fmt::format("{} {}: {}", names[host.host], how_slow(host), compared(host.value)));
  }
  std::vector<SlowPair> left = outliers.pairs;
  for (const bool by_sender : {true, false}) {
    for (size_t host = 0; host < names.size(); ++host) {
      std::vector<std::string> peers;
      std::vector<double> values;
      for (const SlowPair& one : take_group(left, host, by_sender)) {
        peers.push_back(names[by_sender ? one.pair.receiver : one.pair.sender]);
        values.push_back(one.value);
      }
      if (peers.empty()) continue;
      sentences.push_back(fmt::format("{} {} {} peers, not the others ({}): {}", names[host],
                                      by_sender ? "sends slowly to" : "receives slowly from",
                                      peers.size(), fmt::join(peers, ", "),
                                      compared(median(values))));
    }
  }
  while (!left.empty()) {
    const SlowPair one = left.front();
    left.erase(left.begin());
    const Pair back{one.pair.receiver, one.pair.sender};
    const auto other = std::ranges::find(left, back, &SlowPair::pair);
    const bool both = other != left.end();
    SlowPair worse = one;
    if (both) {
      if ((other->value < one.value) == quantity.more_is_better) worse = *other;
      left.erase(other);
    }
    sentences.push_back(fmt::format(
        "only the pair {} {} {} is slow{}: {}", names[one.pair.sender], both ? "<->" : "->",
        names[one.pair.receiver], both ? ", in both directions" : "",
        compared_with("other pairs of its hosts", worse.value, worse.expected, quantity)));
  }
  return sentences;
}

std::string compared_with(std::string_view others, double value, double typical,
                          const Quantity& quantity) {
  const std::string figures =
      fmt::format("({} of {} {})", figure(value), figure(typical), quantity.unit);
  if (quantity.more_is_better) {
    return fmt::format("{:.0f}% below {} {}", 100 * (1 - value / typical), others, figures);
  }
  return fmt::format("{:.1f} times {} {}", value / typical, others, figures);
}

}  // namespace pacecar::hosts
