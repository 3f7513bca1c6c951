// What this process knows of the job's cluster, and the clusters that this allows, for the
// predictor.
//
// All ranks must make the same choices, or the job hangs; and a rank cannot ask the others. So only
// facts that are the same on equal hosts count, and no measurements. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "transport/base/result.h"

namespace pacecar::tuner {

struct NicFacts {
  std::string name;
  double rate = 0;          // bytes per second; 0: not known
  double packet_bytes = 0;  // payload of a full packet
  bool software = false;
};

struct Facts {
  size_t ranks = 0;
  size_t nodes = 0;
  std::vector<NicFacts> nics;  // of this host; the others are assumed to be equal
  std::optional<size_t> ranks_per_nvlink_domain;  // of the largest domain
  // Set by the user; 0: unknown.
  uint32_t oversubscription = 0;  // of leaf switches
  uint32_t hosts_per_leaf = 0;
  double cable_delay_s = 0;  // of a cable, and the switch behind it
};

struct PossibleCluster {
  predict::Cluster cluster;
  double probability = 1;
};

// The possible clusters. Where the user has not described the switches: with rails, leaves that are
// not oversubscribed; else one switch for all hosts, or, half as likely, leaves with a quarter of
// the uplinks. The GPUs' own links are assumed not to be the bottleneck. Errors: kNotFound, with
// what is unknown or does not fit; NCCL's own choices stand then.
Result<std::vector<PossibleCluster>> clusters_of(const Facts& facts);

}  // namespace pacecar::tuner
