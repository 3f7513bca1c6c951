// Counters by name, so that adding, subtracting and printing them is one table each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "transport/nic/caps.h"
#include "transport/sim/fabric.h"

namespace pacecar {

template <typename Counters>
struct CounterField {
  std::string_view name;
  uint64_t Counters::*value;
};

std::span<const CounterField<NicCounters>> nic_counter_fields();
// Without drops and what is in flight.
std::span<const CounterField<FabricCounters>> fabric_counter_fields();
// In the order of FabricDrop.
std::span<const std::string_view> drop_names();

void add(NicCounters& sum, const NicCounters& more);
// What was counted between the two.
NicCounters difference(const NicCounters& now, const NicCounters& before);
FabricCounters difference(const FabricCounters& now, const FabricCounters& before);

}  // namespace pacecar
