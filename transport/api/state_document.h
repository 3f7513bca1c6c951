// The state of a process that transport/state serves, as JSON (README.md lists the members). Pure,
// except own_process(). Thread rule: any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/api/pacecar.hpp"
#include "transport/base/units.h"
#include "transport/message/flow_status.h"
#include "transport/metrics/metric_table.h"
#include "transport/share/memory/host_share.h"
#include "transport/state/processor_time.h"

namespace pacecar {

struct ProcessName {
  std::string host;
  std::string program;
  pid_t pid = 0;
  std::optional<uint64_t> rank;  // in the job
};

// Reads the environment (RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, PMI_RANK).
ProcessName own_process();

struct NicState {
  NicInfo info;
  NicIdentity identity{};
  Rate line_rate;
  Statistics statistics;
  std::vector<FlowStatus> flows;
  std::vector<LinkSharer> sharers;   // of its link, this process among them
  std::optional<bool> link_up = {};  // for network interfaces only
};

struct ProcessState {
  ProcessName name;
  Duration uptime;  // of the Context
  ProcessorTime processor;
  std::string banner;
  std::vector<NicState> nics;
};

enum class StateDetail : uint8_t {
  kWhole,
  kSummary,  // without `flows` and `sharing`, so that its size does not grow with the job
};

// All texts in it are printable ASCII.
std::string state_document(const ProcessState& state, StateDetail detail = StateDetail::kWhole);

metrics::NicFigures figures_of(const NicState& nic);

}  // namespace pacecar
