// collective_bench: N processes load a net plugin as NCCL does, run a collective over it, check
// every element, and print nccl-tests' columns; with --against also those of another plugin, and
// the ratio of the two. Each process has one thread of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl/board.h"
#include "bench/nccl/collective.h"
#include "bench/nccl/spread.h"
#include "bench/nccl/value_or_throw.h"
#include "bench/perf/clock.h"
#include "bench/perf/files.h"
#include "bench/perf/interrupt.h"

namespace pacecar::nccl {
namespace {

using perf::process_cpu_time;
using perf::steady_now;

// The result of one size in one round, over all ranks.
struct Line {
  size_t bytes = 0;
  double seconds = 0;      // per operation, the slowest rank's
  double cpu_seconds = 0;  // per operation, all ranks together
  uint64_t wrong = 0;

  double algorithm_bps() const { return static_cast<double>(bytes) * 8 / seconds; }
};

// The medians of one size over the rounds.
struct Row {
  Line line;
  double other_seconds = 0;  // the other plugin's time per operation
  Spread speedup;            // the other's time / ours within a round
};

struct CollectiveReport {
  CollectiveKind kind;
  int ranks = 0;
  std::string device;
  std::string other_device;  // empty without another plugin
  std::vector<Row> rows;

  // Bus bandwidth, as nccl-tests defines it.
  double bus_bps(const Line& line) const {
    return line.algorithm_bps() * kind.turns * (ranks - 1) / ranks;
  }
  bool compares() const { return !other_device.empty(); }
  void print_header() const {
    fmt::print("# {}, {} ranks, device {}", kind.title, ranks, device);
    if (compares()) fmt::print("; against device {}, medians over rounds", other_device);
    fmt::print("\n#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8} {:>7}", "size", "count",
               "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
    if (compares()) fmt::print(" {:>10} {:>8} {:>8} {:>8}", "against", "speedup", "least", "most");
    fmt::print("\n#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8}", "(B)", "(elements)", "", "",
               "", "(us)", "(GB/s)", "(GB/s)");
    if (compares()) fmt::print(" {:>7} {:>10} {:>8}", "", "(us)", "(times)");
    fmt::print("\n");
  }

  void print_last_row() const {
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

  // Throws std::runtime_error when the file cannot be written.
  void write_json(const std::string& path) const {
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
    value_or_throw(perf::write_json(path, {{"schema_version", 1},
                                           {"op", kind.operation},
                                           {"algorithm", kind.algorithm},
                                           {"ranks", ranks},
                                           {"results", results}}));
  }
};

double median(const std::vector<Line>& rounds, double Line::*figure) {
  std::vector<double> samples;
  for (const Line& line : rounds) samples.push_back(line.*figure);
  return spread_of(std::move(samples)).median;
}

// The rounds of one size: at least one, and as many of the other plugin.
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

constexpr int kAllRanks = -1;
constexpr Duration kBoardLimit = Duration::from_s(120);

struct Options {
  const CollectiveKind* kind = &collectives().front();
  std::string plugin;
  std::string against;                 // another plugin; empty: none
  size_t rounds = 5;                   // with `against`
  RemoteRank self{.rank = kAllRanks};  // all of them, or the one that this process is
  size_t min_bytes = 4096;
  size_t max_bytes = 64 << 20;
  size_t factor = 4;
  size_t iterations = 20;
  double seconds = 0;  // rounds of each size go on for at least so long
  std::string json_file;
};

uint64_t checked_operation(Collective& collective, size_t elements) {
  collective.load(elements);
  collective.run(elements);
  return collective.wrong(elements);
}

// A checked operation, a barrier, the timed operations, and a checked one again. After the last
// barrier all ranks' figures are on the board.
Line measure_size(Collective& collective, Board& board, int rank, size_t bytes, size_t iterations,
                  Instant start) {
  const size_t elements = bytes / sizeof(float);
  RankFigures figures{.wrong = checked_operation(collective, elements)};
  value_or_throw(board.barrier());
  collective.clear(elements);
  const Instant begin = steady_now();
  const Duration cpu_begin = process_cpu_time();
  for (size_t i = 0; i < iterations; ++i) collective.run(elements);
  const auto n = static_cast<double>(iterations);
  figures.seconds = (steady_now() - begin).seconds() / n;
  figures.cpu_seconds = (process_cpu_time() - cpu_begin).seconds() / n;
  figures.wrong += checked_operation(collective, elements);
  figures.elapsed = (steady_now() - start).seconds();
  board.figures[static_cast<size_t>(rank)] = figures;
  value_or_throw(board.barrier());
  Line line{.bytes = bytes};
  for (const RankFigures& one :
       std::span(board.figures).first(static_cast<size_t>(board.ranks()))) {
    line.seconds = std::max(line.seconds, one.seconds);
    line.cpu_seconds += one.cpu_seconds;
    line.wrong += one.wrong;
  }
  return line;
}

// A plugin in this rank, with its connections.
struct Contender {
  Contender(const Options& options, const std::string& path, Board& board, int rank)
      : plugin(path), host({.path = path}, stderr_log(rank == 0)) {
    host.start();
    collective = options.kind->make(host, board, rank, options.max_bytes / sizeof(float));
  }

  const std::string plugin;
  Host host;
  std::unique_ptr<Collective> collective;
  std::vector<Line> lines;  // one per round of the size that is measured
};

// Each round measures each plugin once; the order changes from round to round. All ranks end with
// the same round: rank 0's clock decides.
void measure_rounds(const Options& options, std::deque<Contender>& contenders, Board& board,
                    int rank, size_t bytes) {
  const size_t rounds = contenders.size() > 1 ? options.rounds : 1;
  const Instant start = steady_now();
  for (Contender& contender : contenders) contender.lines.clear();
  for (size_t round = 0; round < rounds || board.figures[0].elapsed < options.seconds; ++round) {
    for (size_t turn = 0; turn < contenders.size(); ++turn) {
      Contender& contender = contenders[(round + turn) % contenders.size()];
      contender.lines.push_back(
          measure_size(*contender.collective, board, rank, bytes, options.iterations, start));
    }
  }
}

void expect_right(const Contender& contender) {
  uint64_t wrong = 0;
  for (const Line& line : contender.lines) wrong += line.wrong;
  if (wrong == 0) return;
  throw std::runtime_error(
      fmt::format("{}: {} elements are wrong: data was damaged", contender.plugin, wrong));
}

void run_rank(const Options& options, Board& board, int rank) {
  const bool reports = rank == 0;
  std::deque<Contender> contenders;
  contenders.emplace_back(options, options.plugin, board, rank);
  if (!options.against.empty()) contenders.emplace_back(options, options.against, board, rank);
  const Contender& own = contenders.front();
  const Contender& last = contenders.back();
  CollectiveReport report{
      .kind = *options.kind, .ranks = options.self.ranks, .device = own.host.device_name()};
  if (contenders.size() > 1) report.other_device = last.host.device_name();
  if (reports) report.print_header();

  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    measure_rounds(options, contenders, board, rank, bytes);
    report.rows.push_back(summarise(own.lines, last.lines));
    if (reports) report.print_last_row();
    for (const Contender& contender : contenders) expect_right(contender);
  }
  for (Contender& contender : contenders) contender.collective->close();
  if (reports && !options.json_file.empty()) report.write_json(options.json_file);
}

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  using namespace pacecar::nccl;
  pacecar::perf::end_by_signals_as_first_process();
  Options options;
  CLI::App app("Runs, checks and times a collective over a net plugin, as NCCL would.",
               "collective_bench");
  const CLI::AsSizeValue size(false);
  std::map<std::string, const CollectiveKind*> kinds;
  for (const CollectiveKind& kind : collectives()) kinds.emplace(kind.name, &kind);
  app.add_option_function<std::string>(
         "--op", [&](const std::string& name) { options.kind = kinds.at(name); }, "the collective")
      ->check(CLI::IsMember(kinds))
      ->default_str(std::string(options.kind->name));
  app.add_option("--plugin", options.plugin, "path of libnccl-net-pacecar.so")->required();
  app.add_option("--ranks", options.self.ranks, "number of processes")
      ->check(CLI::Range(2, kMaxRanks));
  auto* against = app.add_option("--against", options.against,
                                 "compare with this plugin, in turns, by ratios within a round");
  app.add_option("--rounds", options.rounds, "rounds of --against")
      ->check(CLI::Range(1, 1000))
      ->needs(against);
  auto* rank =
      app.add_option("--rank", options.self.rank, "be this one rank; the others run elsewhere")
          ->check(CLI::Range(0, kMaxRanks - 1));
  app.add_option("--root", options.self.root, "address of rank 0, to which the others connect")
      ->needs(rank);
  app.add_option("--port", options.self.port, "TCP port of rank 0 for the other ranks")
      ->needs(rank);
  app.add_option("-b,--minbytes", options.min_bytes, "first size")->transform(size);
  app.add_option("-e,--maxbytes", options.max_bytes, "last size")->transform(size);
  app.add_option("-f,--stepfactor", options.factor, "factor from size to size")
      ->check(CLI::Range(2, 1024));
  app.add_option("-n,--iters", options.iterations, "timed operations per size")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seconds", options.seconds,
                 "run each size for this many seconds, with checks before and after -n operations")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--out_json_file", options.json_file, "write the figures to this file as JSON");
  CLI11_PARSE(app, argc, argv);
  const size_t least = options.kind->least_buffer_bytes(options.self.ranks);
  if (options.min_bytes < least || options.min_bytes > options.max_bytes) {
    fmt::print(stderr, "--minbytes must be from {} to --maxbytes\n", least);
    return 2;
  }
  if (options.self.rank >= options.self.ranks ||
      (options.self.rank != kAllRanks && options.self.root.empty())) {
    fmt::print(stderr, "--rank must be below --ranks, and needs --root with rank 0's address\n");
    return 2;
  }
  const auto body = [&](Board& board, int self) { run_rank(options, board, self); };
  if (options.self.rank == kAllRanks) return run_ranks(options.self.ranks, body) ? 0 : 1;
  return run_remote_rank(options.self, kBoardLimit, body) ? 0 : 1;
}
