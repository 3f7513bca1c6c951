// How long the collectives of a plan take: the predictor's answers, each asked for once. A group of
// ranks is put on a small cluster of its own, with its share of the hosts' NICs.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"

namespace pacecar::plan {

// Ranks on hosts of one kind, as many on each; of kSendRecv one rank on a host of `kind`, and one
// on a host of `other`.
struct RankGroup {
  uint32_t kind = 0;
  uint32_t other = 0;
  uint32_t hosts = 1;
  uint32_t per_host = 1;
  uint32_t sharing = 1;  // groups that use a host's NICs at the same time
  auto operator<=>(const RankGroup&) const = default;
};

// One thread at a time.
class CommTimes {
 public:
  // Both must outlive it.
  CommTimes(const predict::Cluster& cluster, const predict::LibraryCosts& library)
      : cluster_(cluster), library_(library) {}

  // Seconds, by the fastest algorithm and protocol; bytes as nccl-tests count them. 0 for a rank
  // that is alone.
  double time_s(predict::Operation operation, const RankGroup& group, double bytes);

 private:
  static constexpr int kSmallest = 10;  // exponents of 2
  static constexpr int kLargest = 36;
  using Column = std::array<double, kLargest - kSmallest + 1>;  // below 0: not yet asked for
  struct Key {
    predict::Operation operation;
    RankGroup group;
    auto operator<=>(const Key&) const = default;
  };

  double at(Column& column, const Key& key, int exponent);
  double ask(const Key& key, double bytes) const;

  const predict::Cluster& cluster_;
  const predict::LibraryCosts& library_;
  std::map<Key, Column> columns_;
};

}  // namespace pacecar::plan
