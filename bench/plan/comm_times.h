// The times of a plan's collectives: predictions, each made once. A group of ranks is predicted on
// a small cluster of its own, with its share of the hosts' NICs.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::plan {

// Ranks on hosts of one kind, equally many on each. For kSendRecv: one rank on a host of `kind`,
// and one on a host of `other`.
struct RankGroup {
  uint32_t kind = 0;
  uint32_t other = 0;
  uint32_t hosts = 1;
  uint32_t per_host = 1;
  uint32_t sharing = 1;  // groups that share the NICs of a host
  auto operator<=>(const RankGroup&) const = default;
};

class CommTimes {
 public:
  // Both must outlive it.
  CommTimes(const predict::Cluster& cluster, const predict::LibraryCosts& library)
      : cluster_(cluster), library_(library) {}

  // In seconds, by the fastest algorithm and protocol; bytes as nccl-tests count them. 0 for a
  // group of one rank.
  double time_s(predict::Operation operation, const RankGroup& group, double bytes);

 private:
  static constexpr int kSmallest = 10;  // exponents of 2
  static constexpr int kLargest = 36;
  using Column = std::array<double, kLargest - kSmallest + 1>;  // below 0: not yet predicted
  struct Key {
    predict::Operation operation;
    RankGroup group;
    auto operator<=>(const Key&) const = default;
  };

  double at(Column& column, const Key& key, int exponent);

  const predict::Cluster& cluster_;
  const predict::LibraryCosts& library_;
  std::map<Key, Column> columns_;
};

}  // namespace pacecar::plan
