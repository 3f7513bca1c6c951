// What `pacecar predict` is asked, from TOML tables: the cluster, what the transport and the
// library cost, and the collectives. README.md tells the keys.
#pragma once

#include <string_view>
#include <vector>

#include "bench/sim/spec_value.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"
#include "transport/base/result.h"

namespace pacecar::predict {

struct Description {
  Cluster cluster;
  LibraryCosts overheads;
  std::vector<Operation> operations;
  std::vector<Algorithm> algorithms;  // those of them that an operation has
  std::vector<Protocol> protocols;
  std::vector<Bytes> sizes;
  Collective like;  // channels, pieces, group and parallel of all
};

// Errors: kInvalidArgument; file, line, cause and cure.
Result<Description> read_description(const SpecTable& tables);

// "8:16G:x4", "64K", "1K,1M": sizes. A number alone is in bytes, K, M and G are powers of 1024.
// Errors: kInvalidArgument.
Result<std::vector<Bytes>> parse_sizes(std::string_view text);

}  // namespace pacecar::predict
