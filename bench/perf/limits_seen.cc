#include "bench/perf/limits_seen.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/perf/json_fields.h"
#include "cc/controller.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr double kMaxNumber = 1e18;
constexpr double kWorthReporting = 0.005;

struct Number {
  const char* key;
  double FlowView::*value;
};

constexpr std::array kNumbers = {
    Number{"rate_bps", &FlowView::rate_bps},     Number{"grant_bps", &FlowView::grant_bps},
    Number{"share_bps", &FlowView::share_bps},   Number{"core_bps", &FlowView::core_bps},
    Number{"budget_bps", &FlowView::budget_bps}, Number{"rtt_us", &FlowView::rtt_us},
};

struct Count {
  const char* key;
  uint64_t FlowView::*value;
};

constexpr std::array kCounts = {
    Count{"grant_age_ns", &FlowView::grant_age_ns},
    Count{"phase_ns", &FlowView::phase_ns},
    Count{"epoch", &FlowView::epoch},
};

}  // namespace

void LimitsSeen::add(std::string_view reason, uint64_t looks) {
  for (Reason& known : reasons_) {
    if (known.looks > 0 && known.name != reason) continue;
    known.name = reason;
    known.looks += looks;
    looks_ += looks;
    return;
  }
}

void LimitsSeen::add(const FlowView& flow) {
  add(flow.limited_by, 1);
  last_ = flow;
}

void LimitsSeen::add(const LimitsSeen& later) {
  if (!later.any()) return;
  for (const Reason& reason : later.reasons_) {
    if (reason.looks > 0) add(reason.name, reason.looks);
  }
  last_ = later.last_;
}

Json LimitsSeen::shares() const {
  Json shares = Json::object();
  for (const Reason& reason : reasons_) {
    if (reason.looks == 0) break;
    shares[std::string(reason.name)] =
        static_cast<double>(reason.looks) / static_cast<double>(looks_);
  }
  return shares;
}

std::string LimitsSeen::words() const {
  std::array<Reason, kReasons> sorted = reasons_;
  std::ranges::stable_sort(sorted, std::greater<>(), &Reason::looks);
  std::string words;
  for (const Reason& reason : sorted) {
    const double share = static_cast<double>(reason.looks) / static_cast<double>(looks_);
    if (reason.looks == 0 || share < kWorthReporting) break;
    words += fmt::format("{}{} {:.0f}%{}", words.empty() ? "" : ", ", reason.name, 100 * share,
                         words.empty() ? " of the time" : "");
  }
  return words;
}

Json to_json(const FlowView& flow) {
  Json object = {{"limited_by", flow.limited_by}};
  for (const Number& number : kNumbers) object[number.key] = flow.*number.value;
  for (const Count& count : kCounts) object[count.key] = flow.*count.value;
  return object;
}

Result<FlowView> flow_view_from_json(const Json& object) {
  FlowView flow;
  ASSIGN_OR_RETURN(const auto reason, text_field(object, "limited_by", 64));
  const auto known =
      std::ranges::find(kLimits, reason, [](LimitedBy limit) { return to_string(limit); });
  if (known == kLimits.end()) {
    return fail(ErrorCode::kPeer, fmt::format("the peer's rate is limited by '{}', which means "
                                              "nothing here: run the same version of pacecar at "
                                              "both ends",
                                              reason));
  }
  flow.limited_by = to_string(*known);
  for (const Number& number : kNumbers) {
    ASSIGN_OR_RETURN(flow.*number.value, number_field(object, number.key, 0, kMaxNumber));
  }
  for (const Count& count : kCounts) {
    ASSIGN_OR_RETURN(flow.*count.value,
                     unsigned_field(object, count.key, 0, std::numeric_limits<uint64_t>::max()));
  }
  return flow;
}

}  // namespace pacecar::perf
