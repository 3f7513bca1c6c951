// The input of `pacecar predict` from TOML tables: the cluster, the costs of the transport and the
// library, and the collectives. README.md lists the keys.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/sim/spec_value.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "transport/base/result.h"

namespace pacecar::predict {

// The enumerator with this name, of those whose names are given.
template <typename Name>
std::optional<Name> named(std::string_view name, std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Name>(found - names.begin());
}

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
