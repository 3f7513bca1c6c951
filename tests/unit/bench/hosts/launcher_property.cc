// Nodelists against a model; and quoting for shells.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/hosts/targets.h"

namespace pacecar::test::launcher_property {
namespace {

using namespace hosts;

RC_GTEST_PROP(NodelistProperty, RangesExpandToTheirNumbers, ()) {
  std::string text;
  std::vector<std::string> expected;
  const auto items = *rc::gen::inRange(1, 5);
  for (int item = 0; item < items; ++item) {
    const std::string name = *rc::gen::nonEmpty(
        rc::gen::container<std::string>(rc::gen::elementOf(std::string("abcxyz-._"))));
    text += (text.empty() ? "" : ",") + name + "[";
    const auto ranges = *rc::gen::inRange(1, 4);
    for (int range = 0; range < ranges; ++range) {
      const auto width = *rc::gen::inRange(1, 6);
      const auto first = *rc::gen::inRange(0, 500);
      const auto last = first + *rc::gen::inRange(0, 20);
      text += fmt::format("{}{:0{}}-{}", range == 0 ? "" : ",", first, width, last);
      const size_t digits = std::max(std::to_string(first).size(), static_cast<size_t>(width));
      for (int n = first; n <= last; ++n) {
        expected.push_back(fmt::format("{}{:0{}}", name, n, digits));
      }
    }
    text += "]";
  }
  const auto names = expand_names(text);
  RC_ASSERT(names.has_value());
  RC_ASSERT(*names == expected);
}

RC_GTEST_PROP(NodelistProperty, AnyTextExpandsOrIsRefused, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab01[],-@ ")));
  const auto names = expand_names(text);
  if (!names) {
    RC_ASSERT(names.error().code == ErrorCode::kInvalidArgument);
    return;
  }
  RC_ASSERT(!names->empty() && names->size() <= kMaxHosts);
}

RC_GTEST_PROP(LauncherProperty, QuotedWordsAreReadBack, (const std::vector<std::string>& words)) {
  std::string line;
  for (const std::string& word : words) line += cli::shell_quoted(word) + " ";
  const auto read = cli::shell_words(line);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == words);
}

}  // namespace
}  // namespace pacecar::test::launcher_property
