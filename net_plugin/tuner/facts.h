// What this process knows of the job's cluster, and the cluster that the predictor takes it for.
// Pure.
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
  double round_trip_s = 0;  // of a small packet, measured; 0: not known
  bool software = false;
};

struct Facts {
  size_t ranks = 0;
  size_t nodes = 0;
  std::vector<NicFacts> nics;  // of this host, which the others are taken to be like
  std::optional<size_t> ranks_per_nvlink_domain;  // the most
};

// Errors: kNotFound, with what is not known or does not fit: then NCCL's own choices stand.
//
// What nobody tells is assumed: one switch for all hosts, and GPUs whose links are not what limits.
Result<predict::Cluster> cluster_of(const Facts& facts);

}  // namespace pacecar::tuner
