#include "cc/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
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
#include "cc/swift.h"
#include "cc/timely.h"
#include "cc/window.h"
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

  OpenLink(Rate line_rate, uint32_t) {
    grant_.rate = line_rate;
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

using Factory = Result<std::unique_ptr<Controller>> (*)(std::string_view name,
                                                        const FlowEnvironment& environment,
                                                        std::span<const NamedValue> constants);
using AllocatorFactory = std::unique_ptr<Allocator> (*)(const FlowEnvironment& environment,
                                                        const PaceConstants& constants,
                                                        uint32_t max_flows);

// For controllers without constants that can be set.
struct NoConstants {
  static constexpr std::array<Constant<NoConstants>, 0> table() { return {}; }
};

template <typename T>
struct ConstantsOf {
  using Type = NoConstants;
};
template <typename T>
requires requires { typename T::Constants; }
struct ConstantsOf<T> {
  using Type = typename T::Constants;
};

template <typename T>
Result<std::unique_ptr<Controller>> make(std::string_view name, const FlowEnvironment& environment,
                                         std::span<const NamedValue> settings) {
  using Constants = typename ConstantsOf<T>::Type;
  return make_constants<Constants>(name, settings).map([&](const Constants& constants) {
    std::unique_ptr<Controller> controller;
    if constexpr (std::is_same_v<Constants, NoConstants>) {
      controller = std::make_unique<T>(environment);
    } else {
      controller = std::make_unique<T>(environment, constants);
    }
    return controller;
  });
}

template <typename T>
constexpr ControllerInfo describe(std::string_view name, std::string_view summary,
                                  std::string_view allocator, bool needs_telemetry = false) {
  return {name, summary, allocator, needs_telemetry, list_constants<typename ConstantsOf<T>::Type>};
}

template <typename T>
std::unique_ptr<Allocator> divide(const FlowEnvironment& environment,
                                  const PaceConstants& constants, uint32_t max_flows) {
  if constexpr (std::is_constructible_v<T, Rate, uint32_t>) {
    return std::make_unique<T>(environment.line_rate, max_flows);
  } else if constexpr (std::is_constructible_v<T, FlowEnvironment, uint32_t, PaceConstants>) {
    return std::make_unique<T>(environment, max_flows, constants);
  } else {
    return std::make_unique<T>(environment, max_flows);
  }
}

// The one list of controllers: entry i of both tables is the same controller.
constexpr ControllerInfo kControllers[] = {
    describe<PaceController>(
        "pace", "explicit max-min rates from receiver and sender, before a queue forms", "pace"),
    describe<SwiftController>(
        "swift", "delay target, additive increase and multiplicative decrease (SIGCOMM 2020)",
        "none"),
    describe<DcqcnController>("dcqcn", "ECN marks, rate (SIGCOMM 2015)", "none"),
    describe<TimelyController>("timely", "gradient of the round trip, rate (SIGCOMM 2015)", "none"),
    describe<HpccController>("hpcc", "telemetry of the busiest hop, window and rate (SIGCOMM 2019)",
                             "none", /*needs_telemetry=*/true),
    describe<PowerTcpController>("powertcp", "power of the busiest hop, window (NSDI 2022)", "none",
                                 /*needs_telemetry=*/true),
    describe<NsccController>("nscc", "ECN mark and delay of each packet, window (UEC 1.0)", "none"),
    describe<RcccController>("rccc", "credit that the receiver hands out in turn (UEC 1.0)",
                             "credit"),
    describe<WindowController>("window", "no signal: a fixed number of chunks in flight", "none"),
    describe<FixedController>("fixed", "no signal: line rate, or a given rate", "none"),
};
constexpr Factory kFactories[] = {
    make<PaceController>,   make<SwiftController>,    make<DcqcnController>, make<TimelyController>,
    make<HpccController>,   make<PowerTcpController>, make<NsccController>,  make<RcccController>,
    make<WindowController>, make<FixedController>,
};
static_assert(std::size(kControllers) == std::size(kFactories));

// Likewise for allocators.
constexpr AllocatorInfo kAllocators[] = {
    {"pace", "max-min rates and phases for the flows that have a backlog"},
    {"credit", "every flow with demand is granted credit in turn, at a little below line rate"},
    {"none", "every flow is granted the line rate"},
};
constexpr AllocatorFactory kAllocatorFactories[] = {divide<PaceReceiver>, divide<CreditShare>,
                                                    divide<OpenLink>};
static_assert(std::size(kAllocators) == std::size(kAllocatorFactories));

// The controllers of an algorithm that decides for each flow alone.
class IndependentControllers final : public ControllerSet {
 public:
  IndependentControllers(Factory factory, std::string_view name, const FlowEnvironment& environment,
                         std::span<const NamedValue> constants, uint32_t max_flows)
      : factory_(factory),
        name_(name),
        environment_(environment),
        constants_(constants.begin(), constants.end()),
        controllers_(max_flows) {}

  Controller& add_flow(Instant, uint32_t flow) override {
    PACECAR_CHECK(flow < controllers_.size() && controllers_[flow] == nullptr);
    controllers_[flow] = factory_(name_, environment_, constants_).value();
    return *controllers_[flow];
  }
  void remove_flow(Instant, uint32_t flow) override { controllers_[flow].reset(); }

 private:
  Factory factory_;
  std::string_view name_;  // of the table above
  FlowEnvironment environment_;
  std::vector<NamedValue> constants_;
  std::vector<std::unique_ptr<Controller>> controllers_;
};

FlowEnvironment bounded(FlowEnvironment environment, Rate rate) {
  if (rate > Rate()) environment.line_rate = std::min(environment.line_rate, rate);
  environment.rate_max = rate;
  return environment;
}

// The index of `name` in a table of entries with names.
template <typename Info, size_t kCount>
Result<size_t> find(const Info (&table)[kCount], std::string_view kind, std::string_view name) {
  std::string known;
  std::string_view nearest;
  size_t nearest_distance = 3;  // a larger distance is no typing error
  for (size_t i = 0; i < kCount; ++i) {
    if (table[i].name == name) return i;
    fmt::format_to(std::back_inserter(known), "{}{}", known.empty() ? "" : ", ", table[i].name);
    const size_t distance = edit_distance(name, table[i].name);
    if (distance < nearest_distance) {
      nearest = table[i].name;
      nearest_distance = distance;
    }
  }
  const std::string hint =
      nearest.empty() ? std::string() : fmt::format(" (did you mean '{}'?)", nearest);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no {} '{}'{}: use one of {}", kind, name, hint, known));
}

}  // namespace

std::span<const ControllerInfo> controllers() { return kControllers; }

std::span<const AllocatorInfo> allocators() { return kAllocators; }

Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const FlowEnvironment& environment,
                                                    Rate fixed_rate,
                                                    std::span<const NamedValue> constants) {
  return find(kControllers, "congestion control", name).and_then([&](size_t i) {
    return kFactories[i](name, bounded(environment, fixed_rate), constants);
  });
}

Result<std::unique_ptr<ControllerSet>> make_controllers(std::string_view name,
                                                        const FlowEnvironment& environment,
                                                        Rate fixed_rate,
                                                        std::span<const NamedValue> constants,
                                                        uint32_t max_flows) {
  ASSIGN_OR_RETURN(const auto found, find(kControllers, "congestion control", name));
  const FlowEnvironment own = bounded(environment, fixed_rate);
  RETURN_IF_ERROR(kFactories[found](name, own, constants));
  if (name == "pace") {
    return std::make_unique<PaceSenders>(own, *make_constants<PaceConstants>(name, constants),
                                         max_flows);
  }
  return std::make_unique<IndependentControllers>(kFactories[found], kControllers[found].name, own,
                                                  constants, max_flows);
}

Result<std::unique_ptr<Allocator>> make_allocator(std::string_view name,
                                                  const FlowEnvironment& environment,
                                                  uint32_t max_flows,
                                                  std::span<const NamedValue> settings) {
  ASSIGN_OR_RETURN(const auto found, find(kAllocators, "allocator", name));
  PaceConstants constants;
  if (name == "pace") {
    ASSIGN_OR_RETURN(constants, make_constants<PaceConstants>(name, settings));
  }
  return kAllocatorFactories[found](environment, constants, max_flows);
}

Result<ControllerInfo> controller_info(std::string_view name) {
  return find(kControllers, "congestion control", name).map([](size_t i) {
    return kControllers[i];
  });
}

}  // namespace pacecar
