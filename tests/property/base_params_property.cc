#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "transport/base/params.h"

namespace pacecar {
namespace {

// Every raw value that a parameter accepts has a text that parses back to it.
RC_GTEST_PROP(Params, TextOfEveryValueParsesBack, ()) {
  for (const ParamInfo& info : param_table()) {
    if (info.type == ParamType::kText || info.type == ParamType::kEnum) continue;
    const auto raw = *rc::gen::inRange<uint64_t>(info.range.min, info.range.max + 1);
    const auto parsed = parse_param(info, format_param(info, raw));
    RC_ASSERT(parsed.has_value() == info.range.contains(raw));
    if (parsed) RC_ASSERT(*parsed == raw);
  }
}

}  // namespace
}  // namespace pacecar
