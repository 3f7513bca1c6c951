#include "cc/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace pacecar::constants_internal {

Result<size_t> find_row(std::string_view algorithm, std::span<const ConstantInfo> rows,
                        const NamedValue& setting) {
  const auto row = std::ranges::find(rows, setting.name, &ConstantInfo::name);
  if (row == rows.end()) {
    const auto names = rows | std::views::transform(&ConstantInfo::name);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("congestion control '{}' has no constant '{}'{}{}", algorithm,
                            setting.name, rows.empty() ? "" : ": it has ", fmt::join(names, ", ")));
  }
  if (!(setting.value >= row->least && setting.value <= row->most)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("constant '{}' of congestion control '{}' cannot be {}: use {} to {}{}",
                            setting.name, algorithm, setting.value, row->least, row->most,
                            row->unit == "1" ? "" : fmt::format(" {}", row->unit)));
  }
  return static_cast<size_t>(row - rows.begin());
}

}  // namespace pacecar::constants_internal
