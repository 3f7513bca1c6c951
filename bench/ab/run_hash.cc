#include "bench/ab/run_hash.h"

#include <fmt/format.h>

#include <string_view>

#include "bench/ab/build_info.h"

namespace pacecar::ab {
namespace {

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char byte : text) add_byte(static_cast<uint8_t>(byte));
    add_byte(0);
  }
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void add_byte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

  uint64_t value_ = 0xcbf29ce484222325;
};

void add_topology(Hash& hash, const Topology& topology) {
  hash.add(topology.hosts);
  hash.add(topology.processes);
  hash.add(topology.switches);
  for (const Cable& cable : topology.cables) {
    hash.add(uint64_t{cable.a} << 32 | cable.b);
    hash.add(cable.rate.bps());
    hash.add(static_cast<uint64_t>(cable.delay.ns()));
  }
}

void add_workload(Hash& hash, const Workload& workload) {
  for (const WorkloadFlow& flow : workload.flows) {
    hash.add(uint64_t{flow.source} << 32 | flow.destination);
    hash.add(flow.bytes);
    hash.add(static_cast<uint64_t>(flow.start.ns()));
    hash.add(uint64_t{flow.trigger} << 32 | flow.job);
    for (const uint32_t trigger : flow.on_sent) hash.add(trigger);
    hash.add("received");
    for (const uint32_t trigger : flow.on_received) hash.add(trigger);
  }
  for (const WorkloadTrigger& trigger : workload.triggers) {
    hash.add(static_cast<uint64_t>(trigger.kind));
    hash.add(trigger.count);
  }
  for (const WorkloadJob& job : workload.jobs) hash.add(job.congestion_control);
}

}  // namespace

std::string run_hash(const SpecTable& tables, const RunSpec& spec) {
  Hash hash;
  hash.add(build_commit());
  hash.add(to_text(SpecValue{tables, {}}));
  hash.add(spec.seed);
  add_topology(hash, spec.topology);
  add_workload(hash, spec.workload);
  return fmt::format("{:016x}", hash.value());
}

}  // namespace pacecar::ab
