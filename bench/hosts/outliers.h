// Which hosts and pairs are out of line. Pure.
//
// A host sends as its row's median, receives as its column's, taken at the better of two in the
// middle, so that one slow peer of three is not the host's fault. It is slow where that lies below
// the median of all hosts by kDifference and by kDeviations of their median absolute deviations
// (Leys et al., "Detecting outliers", 2013, whose factor makes one a normal distribution's standard
// deviation). A pair is slow beside the slower of its two hosts, by the same rule over all pairs.
// All in logarithms: half and double are equally far.
#pragma once

#include <string>
#include <vector>

#include "bench/hosts/matrix.h"
#include "bench/hosts/schedule.h"

namespace pacecar::hosts {

inline constexpr double kDifference = 0.15;
inline constexpr double kDeviations = 5;
inline constexpr size_t kFewestHosts = 3;  // of two, either could be the outlier

struct SlowHost {
  size_t host = 0;
  bool sends = false;
  bool receives = false;
  double value = 0;       // its worse median
  size_t slow_peers = 0;  // with whom it is slow, in either of these directions
  size_t peers = 0;       // with whom it was measured
};

struct SlowPair {
  Pair pair;
  double value = 0;
  double expected = 0;  // of the slower of the two hosts
};

struct Outliers {
  double median = 0;  // of all figures; 0: there are none
  std::vector<SlowHost> hosts;
  std::vector<SlowPair> pairs;  // not explained by their hosts
};

Outliers find_outliers(const Matrix& matrix, const Quantity& quantity);

// One sentence for each host, and for each pair or each group of pairs with one host in common.
std::vector<std::string> sentences_of(const Outliers& outliers,
                                      const std::vector<std::string>& names,
                                      const Quantity& quantity);

// "12% below the median (80.1 of 91.0 Gb/s)", "2.3 times the median (...)".
std::string beside_median(double value, double median, const Quantity& quantity);

}  // namespace pacecar::hosts
