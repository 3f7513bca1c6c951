// What the tuner may change in random tables of costs, valid or not.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "net_plugin/tuner/tuner.h"

namespace pacecar::tuner::tuner_property {
namespace {

const Tuner& tuner() {
  static const Tuner instance(*clusters_of({.ranks = 8,
                                            .nodes = 8,
                                            .nics = {nic_kind("soft:udp:eth0", 3.125e9, 0)},
                                            .ranks_per_nvlink_domain = {}}));
  return instance;
}

struct Drawn {
  std::vector<float> entries;
  int algorithms = 0;
  int protocols = 0;

  CostView view() { return {entries.data(), algorithms, protocols}; }
};

Drawn any_table() {
  Drawn drawn;
  drawn.algorithms = *rc::gen::weightedOneOf<int>(
      {{6, rc::gen::inRange(1, nccl::kTunedAlgorithms + 1)}, {1, rc::gen::inRange(0, 10)}});
  drawn.protocols = *rc::gen::weightedOneOf<int>(
      {{6, rc::gen::inRange(1, nccl::kTunedProtocols + 1)}, {1, rc::gen::inRange(0, 5)}});
  const auto size = static_cast<size_t>(drawn.algorithms * drawn.protocols);
  const bool judged = *rc::gen::weightedElement<bool>({{3, true}, {1, false}});  // trees and rings
  for (size_t i = 0; i < size; ++i) {
    const bool out = (judged && i >= static_cast<size_t>(2 * drawn.protocols)) ||
                     *rc::gen::weightedElement<bool>({{1, true}, {3, false}});
    drawn.entries.push_back(out ? nccl::kRuledOut
                                : static_cast<float>(*rc::gen::inRange(0, 1'000'000)));
  }
  return drawn;
}

Call any_call() {
  return {.function = *rc::gen::oneOf(rc::gen::just(nccl::TunedFunction::kAllReduce),
                                      rc::gen::cast<nccl::TunedFunction>(rc::gen::inRange(-1, 7))),
          .bytes = *rc::gen::oneOf(rc::gen::just(size_t{0}), rc::gen::arbitrary<size_t>(),
                                   rc::gen::inRange(size_t{1}, size_t{1} << 26)),
          .operations = *rc::gen::weightedElement<int>({{6, 1}, {1, 0}, {1, 4}})};
}

RC_GTEST_PROP(TunerProperty, FillSetsAllOpenCostsOrNone, ()) {
  Drawn drawn = any_table();
  const Drawn before = drawn;
  const bool filled = tuner().fill(any_call(), drawn.view());
  RC_CLASSIFY(filled);
  for (size_t i = 0; i < before.entries.size(); ++i) {
    if (before.entries[i] == nccl::kRuledOut) {
      RC_ASSERT(drawn.entries[i] == nccl::kRuledOut);
    } else if (filled) {
      RC_ASSERT(std::isfinite(drawn.entries[i]));
      RC_ASSERT(drawn.entries[i] > 0);
    } else {
      RC_ASSERT(drawn.entries[i] == before.entries[i]);
    }
  }
}

RC_GTEST_PROP(TunerProperty, FilledCostsDoNotDependOnNcclsCosts, ()) {
  Drawn drawn = any_table();
  Drawn other = drawn;
  for (float& entry : other.entries) {
    if (entry != nccl::kRuledOut) entry = static_cast<float>(*rc::gen::inRange(0, 1'000'000));
  }
  const Call call = any_call();
  const bool filled = tuner().fill(call, drawn.view());
  RC_ASSERT(tuner().fill(call, other.view()) == filled);
  if (filled) RC_ASSERT(drawn.entries == other.entries);
}

RC_GTEST_PROP(TunerProperty, FastestIsTheLowestCostNotRuledOut, ()) {
  Drawn drawn = any_table();
  const auto found = fastest(drawn.view());
  for (const float entry : drawn.entries) {
    if (entry == nccl::kRuledOut) continue;
    RC_ASSERT(found.has_value());
    RC_ASSERT(found->time_us <= entry);
  }
  if (found) {
    RC_ASSERT(drawn.view().at(static_cast<int>(found->algorithm),
                              static_cast<int>(found->protocol)) == found->time_us);
  }
}

}  // namespace
}  // namespace pacecar::tuner::tuner_property
