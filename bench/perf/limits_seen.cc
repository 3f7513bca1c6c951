#include "bench/perf/limits_seen.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr double kWorthReporting = 0.005;

constexpr std::array<std::pair<const char*, double FlowView::*>, 6> kNumbers = {{
    {"rate_bps", &FlowView::rate_bps},
    {"grant_bps", &FlowView::grant_bps},
    {"share_bps", &FlowView::share_bps},
    {"core_bps", &FlowView::core_bps},
    {"budget_bps", &FlowView::budget_bps},
    {"rtt_us", &FlowView::rtt_us},
}};

constexpr std::array<std::pair<const char*, uint64_t FlowView::*>, 3> kCounts = {{
    {"grant_age_ns", &FlowView::grant_age_ns},
    {"phase_ns", &FlowView::phase_ns},
    {"epoch", &FlowView::epoch},
}};

auto find_limit(std::string_view name) {
  return std::ranges::find(kEveryLimit, name, [](LimitedBy limit) { return to_string(limit); });
}

}  // namespace

void LimitsSeen::add(const FlowView& flow) {
  ++found_.at(static_cast<size_t>(find_limit(flow.limited_by) - kEveryLimit.begin()));
  ++samples_;
  last_ = flow;
}

void LimitsSeen::add(const LimitsSeen& later) {
  if (!later.any()) return;
  for (size_t i = 0; i < found_.size(); ++i) found_[i] += later.found_[i];
  samples_ += later.samples_;
  last_ = later.last_;
}

Json LimitsSeen::shares() const {
  Json shares = Json::object();
  for (size_t i = 0; i < found_.size(); ++i) {
    if (found_[i] > 0) shares[std::string(to_string(kEveryLimit[i]))] = share(i);
  }
  return shares;
}

std::string LimitsSeen::words() const {
  std::array<size_t, kEveryLimit.size()> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [this](size_t i) { return found_[i]; });
  std::string words;
  for (const size_t i : order) {
    if (found_[i] == 0 || share(i) < kWorthReporting) break;
    words += fmt::format("{}{} {:.0f}%{}", words.empty() ? "" : ", ", to_string(kEveryLimit[i]),
                         100 * share(i), words.empty() ? " of the time" : "");
  }
  return words;
}

Json to_json(const FlowView& flow) {
  Json object = {{"limited_by", flow.limited_by}};
  for (const auto& [key, value] : kNumbers) object[key] = flow.*value;
  for (const auto& [key, value] : kCounts) object[key] = flow.*value;
  return object;
}

Result<FlowView> flow_view_from_json(const Json& object) {
  FlowView flow;
  ASSIGN_OR_RETURN(const auto reason, text_field(object, "limited_by", 64));
  const auto known = find_limit(reason);
  if (known == kEveryLimit.end()) {
    return fail(ErrorCode::kPeer,
                fmt::format("the peer's rate is limited by '{}', which is not known here: run the "
                            "same version of pacecar at both ends",
                            reason));
  }
  flow.limited_by = to_string(*known);
  for (const auto& [key, value] : kNumbers) {
    ASSIGN_OR_RETURN(flow.*value, number_field(object, key, 0, kMaxNumber));
  }
  for (const auto& [key, value] : kCounts) {
    ASSIGN_OR_RETURN(flow.*value, unsigned_field(object, key, 0, UINT64_MAX));
  }
  return flow;
}

}  // namespace pacecar::perf
