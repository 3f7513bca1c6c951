// Golden files: text that a test produces, compared with the copy under tests/golden. A difference
// fails the test and is printed; PACECAR_UPDATE_GOLDEN=1 writes the new text instead, to be
// reviewed with git diff. Needs the definition PACECAR_GOLDEN_DIR.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace pacecar::test {

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The lines between the common beginning and the common end.
inline std::string difference(const std::string& expected, const std::string& actual) {
  const auto a = split_lines(expected);
  const auto b = split_lines(actual);
  const size_t shorter = std::min(a.size(), b.size());
  size_t head = 0;
  while (head < shorter && a[head] == b[head]) ++head;
  size_t tail = 0;
  while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  std::ostringstream out;
  out << "first difference in line " << head + 1 << "\n";
  for (size_t i = head; i < a.size() - tail; ++i) out << "-" << a[i] << "\n";
  for (size_t i = head; i < b.size() - tail; ++i) out << "+" << b[i] << "\n";
  return out.str();
}

// `file` is relative to tests/golden.
inline void expect_golden(const std::string& file, const std::string& actual) {
  const std::string path = std::string(PACECAR_GOLDEN_DIR "/") + file;
  if (std::getenv("PACECAR_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << actual;
    return;
  }
  std::ifstream in(path);
  const std::string expected{std::istreambuf_iterator<char>(in), {}};
  if (expected == actual) return;
  ADD_FAILURE() << path << ": " << difference(expected, actual)
                << "If the new lines are right, run this test again with PACECAR_UPDATE_GOLDEN=1.";
}

}  // namespace pacecar::test
