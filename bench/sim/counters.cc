#include "bench/sim/counters.h"

#include <array>

namespace pacecar {
namespace {

using Nic = NicCounters;
using Switches = FabricCounters;

constexpr std::array kNicFields{
    CounterField<Nic>{"data_packets_sent", &Nic::data_packets_sent},
    CounterField<Nic>{"data_bytes_sent", &Nic::data_bytes_sent},
    CounterField<Nic>{"packets_retransmitted", &Nic::packets_retransmitted},
    CounterField<Nic>{"timeouts", &Nic::timeouts},
    CounterField<Nic>{"acks_sent", &Nic::acks_sent},
    CounterField<Nic>{"data_packets_received", &Nic::data_packets_received},
    CounterField<Nic>{"data_bytes_received", &Nic::data_bytes_received},
    CounterField<Nic>{"silent_packets_received", &Nic::silent_packets_received},
    CounterField<Nic>{"duplicates", &Nic::duplicates},
    CounterField<Nic>{"trimmed_packets", &Nic::trimmed_packets},
    CounterField<Nic>{"marked_packets", &Nic::marked_packets},
    CounterField<Nic>{"acks_received", &Nic::acks_received},
    CounterField<Nic>{"malformed", &Nic::malformed},
    CounterField<Nic>{"bad_checksum", &Nic::bad_checksum},
    CounterField<Nic>{"unknown_queue_pair", &Nic::unknown_queue_pair},
    CounterField<Nic>{"wrong_source", &Nic::wrong_source},
    CounterField<Nic>{"out_of_window", &Nic::out_of_window},
    CounterField<Nic>{"out_of_order", &Nic::out_of_order},
    CounterField<Nic>{"completions_full", &Nic::completions_full},
    CounterField<Nic>{"access_errors", &Nic::access_errors},
};
static_assert(sizeof(Nic) == kNicFields.size() * sizeof(uint64_t), "a counter is missing here");

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
    "no_route", "queue_full", "inbox_full", "link_down", "loss", "partition"};

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
