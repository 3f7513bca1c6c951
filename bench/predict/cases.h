// Random clusters and collectives for the validation of the predictor, each both as an experiment
// for the packet simulator and as what the predictor takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"
#include "transport/base/units.h"

namespace pacecar::predict {

struct CaseLimits {
  uint32_t hosts = 512;
  // Of a simulation, in packets (cases.cc). What costs more is drawn again.
  double work = 1.2e6;
};

struct Case {
  std::string name;        // "64 hosts, 8 per leaf, 2:1, 100 Gb/s: ring 8 MB, shuffled"
  std::string experiment;  // TOML for bench/sim
  Cluster cluster;
  std::vector<Collective> collectives;  // by job
  LibraryCosts overheads;
};

// The same seed and limits draw the same case.
Case draw_case(uint64_t seed, const CaseLimits& limits);

}  // namespace pacecar::predict
