// Plans for people, as a table, and for programs, as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "bench/plan/plan_report.h"
#include "bench/plan/search.h"

namespace pacecar::plan {

struct Answer {
  const Problem& problem;
  const SearchResult& search;
  std::span<const PlanReport> plans;  // the best first
  double alone_tokens_per_s = 0;      // 0: there is only one kind
  double search_s = 0;                // wall clock
};

std::string text_of(const Answer& answer);
nlohmann::json document_of(const Answer& answer);

// "5 5 14x8": the stages' layers, those that repeat with how often.
std::string layers_text(std::span<const uint32_t> layers);

}  // namespace pacecar::plan
