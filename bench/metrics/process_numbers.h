// Small numbers that distinguish processes of the same program and rank. A process keeps its number
// until it ends; the next one of that kind takes the smallest that is free. So the label that holds
// it has as few values as there were processes at once, whatever came and went. A pid would add one
// with each process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::metrics {

class ProcessNumbers {
 public:
  // The numbers of these processes, in order; processes that are missing have ended.
  std::vector<size_t> of(const std::vector<doctor::Process>& processes);

 private:
  using Kind = std::string;      // program and rank
  using Identity = std::string;  // what no two processes share, nor one and its successor
  std::map<Kind, std::map<Identity, size_t>> numbers_;
};

}  // namespace pacecar::metrics
