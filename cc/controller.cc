#include "cc/controller.h"

namespace pacecar {

std::string_view to_string(LimitedBy limit) {
  switch (limit) {
    case LimitedBy::kLine:
      return "line";
    case LimitedBy::kGrant:
      return "grant";
    case LimitedBy::kNetwork:
      return "network";
    case LimitedBy::kBudget:
      return "budget";
    case LimitedBy::kHost:
      return "host";
    case LimitedBy::kApplication:
      break;
  }
  return "application";
}

LimitedBy limit_at_line(const FlowEnvironment& environment) {
  const bool bounded =
      environment.rate_max > Rate() && environment.rate_max <= environment.line_rate;
  return bounded ? LimitedBy::kBudget : LimitedBy::kLine;
}

}  // namespace pacecar
