// The input of `pacecar predict` from TOML tables: the cluster, the costs of the transport and the
// library, and the collectives. README.md lists the keys.
#pragma once

#include <vector>

#include "bench/sim/spec_value.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "transport/base/result.h"

namespace pacecar::predict {

struct Description {
  Cluster cluster;
  LibraryCosts overheads;
  std::vector<Operation> operations;
  std::vector<Algorithm> algorithms;  // for the operations that have them
  std::vector<Protocol> protocols;
  std::vector<Bytes> sizes;
  Collective like;  // has the channels, pieces, group and parallel of all
};

// Errors: kInvalidArgument, with file, line, cause and cure.
Result<Description> read_description(const SpecTable& tables);

}  // namespace pacecar::predict
