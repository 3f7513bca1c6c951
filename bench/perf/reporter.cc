#include "bench/perf/reporter.h"

#include <fmt/core.h>

#include <cstdio>
#include <fstream>

namespace pacecar::perf {

Reporter::Reporter(TestKind kind, const TestOptions& options, const TestParameters& parameters)
    : kind_(kind), options_(options), columns_(columns_of(kind, parameters)) {
  options_.parameters = parameters;
  print(header_line(columns_));
}

Result<void> Reporter::add(nlohmann::json result) {
  const auto line = result_line(columns_, result);
  if (!line) return tl::unexpected(line.error());
  print(*line);
  met_ = met_ && meets_threshold(options_, result);
  if (!options_.json_file.empty()) results_.push_back(std::move(result));
  return {};
}

Result<void> Reporter::write_json(std::span<const NicInfo> nics) const {
  if (options_.json_file.empty()) return {};
  const nlohmann::json document = report_document(kind_, options_, nics[nic_], results_);
  const std::string text =
      document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (to_stdout()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
  std::ofstream file(options_.json_file);
  file << text;
  file.close();
  if (file) return {};
  return fail(
      ErrorCode::kSystem,
      fmt::format("cannot write {}: name a place that you may write to with --out_json_file",
                  options_.json_file));
}

void Reporter::print(const std::string& line) const {
  if (to_stdout()) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace pacecar::perf
