#include "bench/sim/counters.h"

#include <array>

namespace pacecar {
namespace {

using Switches = FabricCounters;

constexpr std::array kNicFields{
    CounterField<NicCounters>{"data_packets_sent", &NicCounters::data_packets_sent},
    CounterField<NicCounters>{"data_bytes_sent", &NicCounters::data_bytes_sent},
    CounterField<NicCounters>{"packets_retransmitted", &NicCounters::packets_retransmitted},
    CounterField<NicCounters>{"timeouts", &NicCounters::timeouts},
    CounterField<NicCounters>{"acks_sent", &NicCounters::acks_sent},
    CounterField<NicCounters>{"data_packets_received", &NicCounters::data_packets_received},
    CounterField<NicCounters>{"data_bytes_received", &NicCounters::data_bytes_received},
    CounterField<NicCounters>{"silent_packets_received", &NicCounters::silent_packets_received},
    CounterField<NicCounters>{"duplicates", &NicCounters::duplicates},
    CounterField<NicCounters>{"trimmed_packets", &NicCounters::trimmed_packets},
    CounterField<NicCounters>{"trimmed_in_core", &NicCounters::trimmed_in_core},
    CounterField<NicCounters>{"marked_packets", &NicCounters::marked_packets},
    CounterField<NicCounters>{"acks_received", &NicCounters::acks_received},
    CounterField<NicCounters>{"malformed", &NicCounters::malformed},
    CounterField<NicCounters>{"bad_checksum", &NicCounters::bad_checksum},
    CounterField<NicCounters>{"forged", &NicCounters::forged},
    CounterField<NicCounters>{"replayed", &NicCounters::replayed},
    CounterField<NicCounters>{"unknown_queue_pair", &NicCounters::unknown_queue_pair},
    CounterField<NicCounters>{"wrong_source", &NicCounters::wrong_source},
    CounterField<NicCounters>{"out_of_window", &NicCounters::out_of_window},
    CounterField<NicCounters>{"out_of_order", &NicCounters::out_of_order},
    CounterField<NicCounters>{"completions_full", &NicCounters::completions_full},
    CounterField<NicCounters>{"access_errors", &NicCounters::access_errors},
};
static_assert(sizeof(NicCounters) == kNicFields.size() * sizeof(uint64_t),
              "a counter is missing here");

constexpr std::array kFabricFields{
    CounterField<Switches>{"sent", &Switches::sent},
    CounterField<Switches>{"duplicated", &Switches::duplicated},
    CounterField<Switches>{"corrupted", &Switches::corrupted},
    CounterField<Switches>{"delayed", &Switches::delayed},
    CounterField<Switches>{"marked", &Switches::marked},
    CounterField<Switches>{"trimmed", &Switches::trimmed},
    CounterField<Switches>{"delivered", &Switches::delivered},
    CounterField<Switches>{"pauses", &Switches::pauses},
};

constexpr std::array<std::string_view, static_cast<size_t>(FabricDrop::kCount)> kDropNames{
    "no_route", "queue_full", "inbox_full", "link_down", "loss", "partition", "policer"};

}  // namespace

std::span<const CounterField<NicCounters>> nic_counter_fields() { return kNicFields; }
std::span<const CounterField<FabricCounters>> fabric_counter_fields() { return kFabricFields; }
std::span<const std::string_view> drop_names() { return kDropNames; }

void add(NicCounters& sum, const NicCounters& more) {
  for (const auto& field : kNicFields) sum.*field.value += more.*field.value;
}

NicCounters difference(const NicCounters& now, const NicCounters& before) {
  NicCounters counted = now;
  for (const auto& field : kNicFields) counted.*field.value -= before.*field.value;
  return counted;
}

FabricCounters difference(const FabricCounters& now, const FabricCounters& before) {
  FabricCounters counted = now;
  for (const auto& field : kFabricFields) counted.*field.value -= before.*field.value;
  for (size_t i = 0; i < counted.dropped.size(); ++i) counted.dropped[i] -= before.dropped[i];
  return counted;
}

}  // namespace pacecar
