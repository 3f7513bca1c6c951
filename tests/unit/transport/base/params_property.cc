#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "transport/base/params.h"

namespace pacecar::params_property {
namespace {

// For each parameter: a value in range, formatted, parses back to the same value; one out of range
// is refused.
RC_GTEST_PROP(Params, FormattedValueParsesBack, ()) {
  for (const ParamInfo& info : param_table()) {
    if (info.type == ParamType::kText || info.type == ParamType::kEnum) continue;
    const auto raw = *rc::gen::inRange<uint64_t>(info.range.min, info.range.max + 1);
    const auto parsed = parse_param(info, format_param(info, raw));
    RC_ASSERT(parsed.has_value() == info.range.contains(raw));
    if (parsed) RC_ASSERT(*parsed == raw);
  }
}

}  // namespace
}  // namespace pacecar::params_property
