#include "bench/ab/run_hash.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>
#include <span>

#include "bench/ab/build_info.h"

namespace pacecar::ab {

std::string run_hash(const SpecTable& tables, const RunSpec& spec) {
  const Topology& topology = spec.topology;
  const Workload& workload = spec.workload;
  std::string text =
      fmt::format("{} {} {} {} {} {}", build_commit(), to_text(SpecValue{tables, {}}), spec.seed,
                  topology.hosts, topology.processes, topology.switches);
  for (const Cable& cable : topology.cables) {
    text += fmt::format(";{} {} {} {}", cable.a, cable.b, cable.rate.bps(), cable.delay.ns());
  }
  for (const WorkloadFlow& flow : workload.flows) {
    text += fmt::format(";{} {} {} {} {} {} {} {}", flow.source, flow.destination, flow.bytes,
                        flow.start.ns(), flow.trigger, flow.job, fmt::join(flow.on_sent, ","),
                        fmt::join(flow.on_received, ","));
  }
  for (const WorkloadTrigger& trigger : workload.triggers) {
    text += fmt::format(";{} {}", static_cast<int>(trigger.kind), trigger.count);
  }
  for (const WorkloadJob& job : workload.jobs) text += ";" + job.congestion_control;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(8), ""));
}

}  // namespace pacecar::ab
