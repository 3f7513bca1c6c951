#include "cc/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <type_traits>

#include "cc/credit_share.h"
#include "cc/dcqcn.h"
#include "cc/fixed.h"
#include "cc/hpcc.h"
#include "cc/nscc.h"
#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"
#include "cc/powertcp.h"
#include "cc/rccc.h"
#include "cc/sird.h"
#include "cc/sird_share.h"
#include "cc/swift.h"
#include "cc/timely.h"
#include "transport/base/check.h"
#include "transport/base/edit_distance.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Leaves the link to the senders. Each is granted the line rate, in its CTS slots only; for
// published congestion controls without a receiver's side.
class OpenLink final : public Allocator {
 public:
  // The longest validity: only the next CTS slot repeats the grant.
  static constexpr Duration kValidity = Duration::from_s(10);

  OpenLink(const FlowEnvironment& environment, uint32_t /*max_flows*/) {
    grant_.rate = environment.line_rate;
    grant_.validity = kValidity;
  }

  void add_flow(Instant, uint32_t) override {}
  void remove_flow(Instant, uint32_t) override {}
  void on_posted(Instant, uint32_t, Bytes) override {}
  void on_finished(Instant, uint32_t, Bytes) override {}
  void on_demand(Instant, uint32_t, const Demand&) override {}
  size_t poll_grants(Instant, std::span<GrantUpdate>) override { return 0; }
  Instant next_deadline() const override { return Instant::never(); }
  Grant grant(uint32_t) const override { return grant_; }

 private:
  Grant grant_;
};

// The controllers of an algorithm that decides for each flow alone.
template <typename T>
class IndependentControllers final : public ControllerSet {
 public:
  using Constants = typename T::Constants;

  IndependentControllers(const FlowEnvironment& environment, const Constants& constants,
                         uint32_t max_flows)
      : environment_(environment), constants_(constants), controllers_(max_flows) {}

  Controller& add_flow(Instant, uint32_t flow) override {
    PACECAR_CHECK(flow < controllers_.size() && controllers_[flow] == nullptr);
    controllers_[flow] = std::make_unique<T>(environment_, constants_);
    return *controllers_[flow];
  }
  void remove_flow(Instant, uint32_t flow) override { controllers_[flow].reset(); }

 private:
  const FlowEnvironment environment_;
  const Constants constants_;
  std::vector<std::unique_ptr<T>> controllers_;
};

template <typename Set>
Result<std::unique_ptr<ControllerSet>> make_set(std::string_view name,
                                                const FlowEnvironment& environment,
                                                std::span<const NamedValue> settings,
                                                uint32_t max_flows) {
  return make_constants<typename Set::Constants>(name, settings).map([&](const auto& constants) {
    return std::unique_ptr<ControllerSet>(std::make_unique<Set>(environment, constants, max_flows));
  });
}

template <typename Set>
constexpr ControllerInfo describe(std::string_view name, std::string_view summary,
                                  std::string_view allocator, bool needs_telemetry = false) {
  return {
      name,         summary, allocator, needs_telemetry, list_constants<typename Set::Constants>,
      make_set<Set>};
}
template <typename T>
using Each = IndependentControllers<T>;

template <typename T>
std::unique_ptr<Allocator> divide(const FlowEnvironment& environment, uint32_t max_flows,
                                  const PaceConstants& constants) {
  if constexpr (std::is_constructible_v<T, FlowEnvironment, uint32_t, PaceConstants>) {
    return std::make_unique<T>(environment, max_flows, constants);
  } else {
    return std::make_unique<T>(environment, max_flows);
  }
}

constexpr ControllerInfo kControllers[] = {
    describe<PaceSenders>(
        "pace", "explicit max-min rates from receiver and sender, before a queue forms", "pace"),
    describe<Each<SwiftController>>(
        "swift", "delay target, additive increase and multiplicative decrease (SIGCOMM 2020)",
        "none"),
    describe<Each<DcqcnController>>("dcqcn", "ECN marks, rate (SIGCOMM 2015)", "none"),
    describe<Each<TimelyController>>("timely", "gradient of the round trip, rate (SIGCOMM 2015)",
                                     "none"),
    describe<Each<HpccController>>("hpcc",
                                   "telemetry of the busiest hop, window and rate (SIGCOMM 2019)",
                                   "none", /*needs_telemetry=*/true),
    describe<Each<PowerTcpController>>("powertcp", "power of the busiest hop, window (NSDI 2022)",
                                       "none", /*needs_telemetry=*/true),
    describe<Each<NsccController>>("nscc", "ECN mark and delay of each packet, window (UEC 1.0)",
                                   "none"),
    describe<Each<MnsccController>>(
        "mnscc", "as nscc, with the median of the newest delays (arXiv 2509.07907)", "none"),
    describe<Each<RcccController>>("rccc", "credit that the receiver hands out in turn (UEC 1.0)",
                                   "credit"),
    describe<SirdSenders>(
        "sird", "credit of the receiver, less where it accumulates at senders (NSDI 2025)", "sird"),
    describe<Each<FixedController>>("fixed", "no signal: line rate, or a given rate", "none"),
};

constexpr AllocatorInfo kAllocators[] = {
    {"pace", "max-min rates and phases for the flows that have a backlog", divide<PaceReceiver>},
    {"credit", "every flow with demand is granted credit in turn, at a little below line rate",
     divide<CreditShare>},
    {"sird", "as credit, with a bound on what is outstanding for all flows and for each",
     divide<SirdShare>},
    {"none", "every flow is granted the line rate", divide<OpenLink>},
};

FlowEnvironment bounded(FlowEnvironment environment, Rate rate) {
  if (rate > Rate()) environment.line_rate = std::min(environment.line_rate, rate);
  environment.rate_max = rate;
  return environment;
}

template <typename Info>
Result<Info> find(std::span<const Info> table, std::string_view kind, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Info::name);
  if (found != table.end()) return *found;
  const auto names = table | std::views::transform(&Info::name);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no {} '{}'{}: use one of {}", kind, name,
                          did_you_mean(name, names), fmt::join(names, ", ")));
}

}  // namespace

std::span<const ControllerInfo> controllers() { return kControllers; }

std::span<const AllocatorInfo> allocators() { return kAllocators; }

Result<std::unique_ptr<ControllerSet>> make_controllers(std::string_view name,
                                                        const FlowEnvironment& environment,
                                                        Rate fixed_rate,
                                                        std::span<const NamedValue> constants,
                                                        uint32_t max_flows) {
  ASSIGN_OR_RETURN(const auto info, controller_info(name));
  return info.make(name, bounded(environment, fixed_rate), constants, max_flows);
}

Result<std::unique_ptr<Allocator>> make_allocator(std::string_view name,
                                                  const FlowEnvironment& environment,
                                                  uint32_t max_flows,
                                                  std::span<const NamedValue> settings) {
  ASSIGN_OR_RETURN(const auto info, find(allocators(), "allocator", name));
  PaceConstants constants;
  if (name == "pace") {
    ASSIGN_OR_RETURN(constants, make_constants<PaceConstants>(name, settings));
  }
  return info.make(environment, max_flows, constants);
}

Result<ControllerInfo> controller_info(std::string_view name) {
  return find(controllers(), "congestion control", name);
}

}  // namespace pacecar
