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
    case LimitedBy::kApplication:
      break;
  }
  return "application";
}

}  // namespace pacecar
