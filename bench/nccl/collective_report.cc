#include "bench/nccl/collective_report.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace pacecar::nccl {
namespace {

double median(const std::vector<Line>& rounds, double Line::*figure) {
  std::vector<double> samples;
  for (const Line& line : rounds) samples.push_back(line.*figure);
  return spread_of(std::move(samples)).median;
}

}  // namespace

Row summarise(const std::vector<Line>& ours, const std::vector<Line>& other) {
  Row row{.line = {.bytes = ours.front().bytes,
                   .seconds = median(ours, &Line::seconds),
                   .cpu_seconds = median(ours, &Line::cpu_seconds)},
          .other_seconds = median(other, &Line::seconds)};
  std::vector<double> ratios;
  for (size_t round = 0; round < ours.size(); ++round) {
    row.line.wrong += ours[round].wrong;
    ratios.push_back(other[round].seconds / ours[round].seconds);
  }
  row.speedup = spread_of(std::move(ratios));
  return row;
}

void CollectiveReport::print_header() const {
  fmt::print("# {}, {} ranks, device {}", kind.title, ranks, device);
  if (compares()) fmt::print("; against device {}, medians over rounds", other_device);
  fmt::print("\n#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8} {:>7}", "size", "count", "type",
             "redop", "root", "time", "algbw", "busbw", "#wrong");
  if (compares()) fmt::print(" {:>10} {:>8} {:>8} {:>8}", "against", "speedup", "least", "most");
  fmt::print("\n#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8}", "(B)", "(elements)", "", "",
             "", "(us)", "(GB/s)", "(GB/s)");
  if (compares()) fmt::print(" {:>7} {:>10} {:>8}", "", "(us)", "(times)");
  fmt::print("\n");
}

void CollectiveReport::print_last_row() const {
  const auto& [line, other_seconds, speedup] = rows.back();
  fmt::print("{:>12} {:>12} {:>8} {:>6} {:>5} {:>10.1f} {:>8.3f} {:>8.3f} {:>7}", line.bytes,
             kind.count(line.bytes / sizeof(float), ranks), "float", kind.reduction, -1,
             line.seconds * 1e6, line.algorithm_bps() / 8e9, bus_bps(line) / 8e9, line.wrong);
  if (compares()) {
    fmt::print(" {:>10.1f} {:>8.2f} {:>8.2f} {:>8.2f}", other_seconds * 1e6, speedup.median,
               speedup.least, speedup.most);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void CollectiveReport::write_json(const std::string& path) const {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& [line, other_seconds, speedup] : rows) {
    results.push_back({{"size_bytes", line.bytes},
                       {"time_ns", line.seconds * 1e9},
                       {"algbw_bps", line.algorithm_bps()},
                       {"busbw_bps", bus_bps(line)},
                       {"cpu_ns", line.cpu_seconds * 1e9},
                       {"wrong", line.wrong}});
    if (!compares()) continue;
    results.back()["against_time_ns"] = other_seconds * 1e9;
    results.back()["speedup"] = {
        {"median", speedup.median}, {"least", speedup.least}, {"most", speedup.most}};
  }
  const nlohmann::json report = {{"schema_version", 1},
                                 {"op", kind.operation},
                                 {"algorithm", kind.algorithm},
                                 {"ranks", ranks},
                                 {"results", results}};
  std::ofstream file(path);
  file << report.dump(2) << '\n';
  if (file.flush()) return;
  throw std::runtime_error(fmt::format("cannot write {}: choose another --out_json_file", path));
}

}  // namespace pacecar::nccl
