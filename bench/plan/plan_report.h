// Why a strategy takes its time: times, memory and traffic of each stage, and the limit of the
// step; as a table for people and as JSON for programs. Times in seconds, sizes in bytes. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plan/model.h"
#include "bench/plan/search.h"
#include "bench/plan/stage_costs.h"

namespace pacecar::plan {

struct StageReport {
  Part part;
  uint32_t layers = 0;
  StageCost cost;
  double idle = 0;  // part of the step that it waits
};

// Something that the stage with the least idle time spends a part of the step on.
struct StepShare {
  std::string key;  // in JSON
  std::string_view name;
  double share = 0;
};

struct PlanReport {
  Strategy strategy;
  uint32_t micro_batches = 0;
  uint32_t used = 0;  // accelerators
  double tokens_per_s = 0;
  double utilisation = 0;  // model FLOP/s over the peak of all accelerators (MFU)
  double bubble = 0;       // mean idle part of the used accelerators
  double of_compute = 0;   // part of all accelerators' rate without waits or communication
  std::vector<StageReport> stages;
  uint32_t busiest = 0;
  std::vector<StepShare> shares;
  std::string limited_by;  // a sentence
};

PlanReport report_of(const Problem& problem, const Strategy& strategy, CommTimes& comm);

// HETHUB's upper bound in tokens per second: the sum of the rates that the kinds of accelerator
// reach alone, each by its best plan for the whole model and batch. A kind without enough memory
// counts with its compute bound.
double alone_tokens_per_s(const Problem& problem, CommTimes& comm, SearchOptions options);

struct Answer {
  const Problem& problem;
  const SearchResult& search;
  std::span<const PlanReport> plans;  // the best first
  double alone_tokens_per_s = 0;      // 0: there is only one kind
  double search_s = 0;                // wall clock
};

std::string text_of(const Answer& answer);
nlohmann::json document_of(const Answer& answer);

}  // namespace pacecar::plan
