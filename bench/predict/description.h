// The input of `pacecar predict` from TOML tables: the cluster, the costs of the transport and the
// library, and the collectives. README.md lists the keys.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "bench/sim/spec_value.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "transport/base/result.h"

namespace pacecar::predict {

// The enumerator with this name_of(), of `count` that begin at 0.
template <typename Name>
std::optional<Name> named(std::string_view name, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (name_of(static_cast<Name>(i)) == name) return static_cast<Name>(i);
  }
  return std::nullopt;
}

// An error of the input, by a format of fmt.
template <typename... Args>
auto invalid(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...));
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
