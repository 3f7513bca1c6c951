#include "bench/hosts/nodelist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"

namespace pacecar::hosts {
namespace {

tl::unexpected<Error> wrong(std::string_view text, std::string_view why) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' {}: write names such as gpu[01-16,20],login1", printable(text), why));
}

// Up to the first comma that is in no brackets.
Result<std::string_view> take_item(std::string_view& left) {
  size_t depth = 0;
  for (size_t i = 0; i <= left.size(); ++i) {
    const char c = i < left.size() ? left[i] : ',';
    if (c == '[' && depth++ > 0) return wrong(left, "has a bracket within brackets");
    if (c == ']' && depth-- == 0) return wrong(left, "closes a bracket that it has not opened");
    if (c != ',' || (depth > 0 && i < left.size())) continue;
    if (depth > 0) return wrong(left, "opens a bracket and does not close it");
    const std::string_view item = left.substr(0, i);
    left.remove_prefix(std::min(left.size(), i + 1));
    return item;
  }
  return wrong(left, "has no end");
}

// The numbers of "01-16,20", as texts.
Result<std::vector<std::string>> numbers_of(std::string_view item, std::string_view ranges) {
  std::vector<std::string> numbers;
  for (bool more = true; more;) {
    const size_t comma = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, comma);
    more = comma < ranges.size();
    ranges.remove_prefix(std::min(ranges.size(), comma + 1));
    const size_t dash = std::min(range.find('-'), range.size());
    const std::string_view low = range.substr(0, dash);
    const auto first = to_number<uint64_t>(low);
    const auto last = dash < range.size() ? to_number<uint64_t>(range.substr(dash + 1)) : first;
    if (!first || !last) return wrong(item, "has something else than numbers in its brackets");
    if (*last < *first) return wrong(item, "has a range that runs backwards");
    if (*last - *first >= kMaxHosts - numbers.size()) {
      return wrong(item, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    for (uint64_t n = *first; n <= *last; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, low.size()));
    }
  }
  return numbers;
}

// All names of one item, of which each pair of brackets multiplies them.
Result<std::vector<std::string>> expand_item(std::string_view item) {
  std::vector<std::string> names{""};
  for (std::string_view left = item; !left.empty();) {
    const size_t open = std::min(left.find('['), left.size());
    for (std::string& name : names) name += left.substr(0, open);
    left.remove_prefix(open);
    if (left.empty()) break;
    const size_t close = left.find(']');
    ASSIGN_OR_RETURN(const auto numbers, numbers_of(item, left.substr(1, close - 1)));
    if (names.size() * numbers.size() > kMaxHosts) {
      return wrong(item, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    left.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::string_view left = text; !left.empty() || names.empty();) {
    const bool trailing = left.ends_with(',');
    ASSIGN_OR_RETURN(const auto item, take_item(left));
    if (item.empty() || (trailing && left.empty())) return wrong(text, "has an empty name");
    ASSIGN_OR_RETURN(auto expanded, expand_item(item));
    if (names.size() + expanded.size() > kMaxHosts) {
      return wrong(text, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    std::ranges::move(expanded, std::back_inserter(names));
  }
  return names;
}

}  // namespace pacecar::hosts
