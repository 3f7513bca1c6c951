// The edit distance of two words, for "did you mean ...?". Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace pacecar {

// Insertions, deletions and replacements of letters that turn `a` into `b` (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace pacecar
