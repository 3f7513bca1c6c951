// What the predictor answers to a description: all choices at all sizes; as a table, a document and
// a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/predict/description.h"
#include "net_plugin/predict/predict.h"

namespace pacecar::predict {

struct Answer {
  Collective collective;
  Prediction prediction;
  bool best = false;  // of its operation and size
};

// Operations and sizes in the order of the description.
std::vector<Answer> answers_to(const Description& asked);

// Columns as nccl-tests', and what takes the time; '*' marks the best choice.
std::string table_of(const Description& asked, const std::vector<Answer>& answers);
// Times in microseconds, rates in GB/s.
nlohmann::json document_of(const Description& asked, const std::vector<Answer>& answers);
// Self-contained HTML.
std::string page_of_answers(const nlohmann::json& document);

}  // namespace pacecar::predict
