#include "bench/perf/reporter.h"

#include <fmt/core.h>

#include <cstdio>

#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

std::string_view key_of_output(std::string_view output) {
  if (output == "latency") return "t_avg";
  return output == "message_rate" ? "MsgRate" : "BW_average";
}

}  // namespace

Reporter::Reporter(TestKind kind, const TestOptions& options, const TestParameters& parameters)
    : kind_(kind), options_(options), columns_(columns_of(kind, parameters)) {
  options_.parameters = parameters;
  if (!options_.output.empty()) {
    std::erase_if(columns_, [this](const Column& column) {
      return column.key != key_of_output(options_.output);
    });
    return;
  }
  print(header_line(columns_));
}

Result<void> Reporter::add(nlohmann::json result) {
  ASSIGN_OR_RETURN(const auto line, result_line(columns_, result));
  print(options_.output.empty() ? line : line.substr(line.find_first_not_of(' ')));
  print_counters(result);
  print_samples(result);
  met_ = met_ && meets_threshold(options_, result);
  if (!options_.json_file.empty()) results_.push_back(std::move(result));
  return {};
}

Result<void> Reporter::write_json(std::span<const NicInfo> nics) const {
  if (options_.json_file.empty()) return {};
  return perf::write_json(options_.json_file,
                          report_document(kind_, options_, nics[nic_], results_));
}

void Reporter::print_counters(const nlohmann::json& result) const {
  for (const std::string& name : options_.counters) {
    const auto grown = [&](const char* end) -> uint64_t {
      const nlohmann::json own = result.value(end, nlohmann::json::object());
      for (const char* kind : {"counters", "device_counters"}) {
        const auto count = unsigned_field(own.value(kind, nlohmann::json()), name, 0, UINT64_MAX);
        if (count) return *count;
      }
      return 0;
    };
    print(fmt::format(" {}: client {}, server {}", name, grown("client"), grown("server")));
  }
}

// perftest's form.
void Reporter::print_samples(const nlohmann::json& result) const {
  if (options_.samples == Samples::kNone || !result.contains("samples")) return;
  print("#, usec");
  size_t number = 0;
  for (const nlohmann::json& sample : result.at("samples")) {
    print(fmt::format("{}, {:.2f}", ++number, sample.get<double>()));
  }
}

void Reporter::print(const std::string& line) const {
  if (to_stdout()) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace pacecar::perf
