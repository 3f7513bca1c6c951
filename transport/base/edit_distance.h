// The edit distance of two words, for "did you mean ...?". Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace pacecar {

// Insertions, deletions and replacements of letters that turn `a` into `b` (Levenshtein).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

// " (did you mean 'queue'?)" with the first of the nearest words of `known`. Nothing when no word
// is near: a word that differs in three letters, or in all its letters, is not a typing error.
template <typename Words>
std::string did_you_mean(std::string_view word, const Words& known) {
  std::string_view nearest;
  size_t nearest_distance = 3;
  for (const std::string_view each : known) {
    const size_t distance = edit_distance(word, each);
    if (distance >= std::min(nearest_distance, each.size())) continue;
    nearest = each;
    nearest_distance = distance;
  }
  return nearest.empty() ? "" : " (did you mean '" + std::string(nearest) + "'?)";
}

}  // namespace pacecar
