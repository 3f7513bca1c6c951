// Prints the columns of a test as its results come, and keeps them for the JSON document.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/perf/files.h"
#include "bench/perf/options.h"
#include "bench/perf/report.h"

namespace pacecar::perf {

class Reporter {
 public:
  // Prints the header. `parameters` are the client's; files and thresholds are those of `options`.
  Reporter(TestKind kind, const TestOptions& options, const TestParameters& parameters);

  // Errors: kPeer when the result, which may be a peer's, lacks a number.
  Result<void> add(nlohmann::json result);
  bool thresholds_met() const { return met_; }
  // The NIC that the streams used.
  void set_nic(size_t nic) { nic_ = nic; }
  // Writes the document where the options say, if they do. Errors: kSystem.
  Result<void> write_json(std::span<const NicInfo> nics) const;

 private:
  // The document itself may take standard output; then columns would spoil it.
  bool to_stdout() const { return options_.json_file == kStandardOutput; }
  void print(const std::string& line) const;
  void print_counters(const nlohmann::json& result) const;
  void print_samples(const nlohmann::json& result) const;

  TestKind kind_;
  TestOptions options_;
  std::vector<Column> columns_;
  std::vector<nlohmann::json> results_;
  bool met_ = true;
  size_t nic_ = 0;
};

}  // namespace pacecar::perf
