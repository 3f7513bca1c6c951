// Slow hosts and pairs of a matrix. Pure.
//
// A host's figure as a sender is the median of its row, as a receiver that of its column; of the
// two in the middle the better one, so that one slow peer of three does not make the host slow. A
// host is slow if this is below the median of all hosts both by kDifference and by kDeviations
// times their median absolute deviation, scaled to a normal distribution's standard deviation (Leys
// et al., "Detecting outliers", 2013). A pair is compared in the same way with the slower of its
// two hosts. All is computed in logarithms, so that half and double are equally far.
#pragma once

#include <string>
#include <vector>

#include "bench/hosts/matrix.h"

namespace pacecar::hosts {

inline constexpr double kDifference = 0.15;
inline constexpr double kDeviations = 5;
inline constexpr size_t kFewestHosts = 3;  // of two, either could be the outlier

struct SlowHost {
  size_t host = 0;
  bool sends = false;
  bool receives = false;
  double value = 0;       // its worse median
  size_t slow_peers = 0;  // peers with which it is slow in one of these directions
  size_t peers = 0;       // peers with which it was measured in them
};

struct SlowPair {
  Pair pair;
  double value = 0;
  double expected = 0;  // of the slower of the two hosts
};

struct Outliers {
  // The median of the hosts' figures, which a few slow hosts do not change; of all pairs, where the
  // hosts are too few. 0: nothing was measured.
  double typical = 0;
  std::vector<SlowHost> hosts;
  std::vector<SlowPair> pairs;  // not explained by their hosts
};

Outliers find_outliers(const Matrix& matrix, const Quantity& quantity);

// One sentence for each host, and for each pair or each group of pairs with one host in common.
std::vector<std::string> sentences_of(const Outliers& outliers,
                                      const std::vector<std::string>& names,
                                      const Quantity& quantity);

// "12% below a typical pair (80.1 of 91.0 Gb/s)", "2.3 times a typical pair (...)".
std::string compared_with(std::string_view others, double value, double typical,
                          const Quantity& quantity);

}  // namespace pacecar::hosts
