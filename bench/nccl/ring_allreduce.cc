// ring_allreduce: N processes load a net plugin as NCCL does, sum buffers around a ring, check
// every element, and print nccl-tests' columns.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/nccl/rank_group.h"
#include "bench/nccl/remote_board.h"
#include "bench/nccl/ring.h"
#include "bench/nccl/value_or_throw.h"

namespace pacecar::nccl {
namespace {

constexpr int kAllRanks = -1;
constexpr Duration kBoardLimit = Duration::from_s(120);

struct Options {
  std::string plugin;
  int ranks = 2;
  int rank = kAllRanks;  // which one this process is
  std::string root;      // rank 0's host
  uint16_t port = 18515;
  size_t min_bytes = 4096;
  size_t max_bytes = 64 << 20;
  size_t factor = 4;
  size_t iterations = 20;
  std::string json_file;
};

// What one size came to, over all ranks.
struct Line {
  size_t bytes = 0;
  double seconds = 0;      // per operation, the slowest rank's
  double cpu_seconds = 0;  // per operation, all ranks together
  uint64_t wrong = 0;

  // As nccl-tests defines them.
  double algorithm_bps() const { return static_cast<double>(bytes) * 8 / seconds; }
  double bus_bps(int ranks) const { return algorithm_bps() * 2 * (ranks - 1) / ranks; }
};

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double cpu_seconds_now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Small whole numbers, so that every sum is exact and has one right answer.
float element(size_t index, size_t rank) {
  return static_cast<float>((index * 7 + rank * 13 + 1) % 61);
}

// Sums numbers that are known and returns how many results are wrong.
uint64_t checked_operation(Ring& ring, size_t count, size_t rank, size_t ranks) {
  const std::span<float> data = ring.data().first(count);
  for (size_t i = 0; i < count; ++i) data[i] = element(i, rank);
  ring.all_reduce(count);
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (size_t r = 0; r < ranks; ++r) sum += element(i, r);
    wrong += data[i] != sum;
  }
  return wrong;
}

void timed_operations(Ring& ring, size_t count, size_t iterations, RankFigures* figures) {
  std::fill_n(ring.data().begin(), count, 0.0F);  // sums of any number of turns stay finite
  const double start = seconds_now();
  const double cpu_start = cpu_seconds_now();
  for (size_t i = 0; i < iterations; ++i) ring.all_reduce(count);
  const auto n = static_cast<double>(iterations);
  figures->seconds = (seconds_now() - start) / n;
  figures->cpu_seconds = (cpu_seconds_now() - cpu_start) / n;
}

// A checked operation, the timed ones between two barriers, and a checked one again. The figures
// are on the board when the last barrier is passed.
void measure_size(Ring& ring, Board& board, int rank, size_t bytes, size_t iterations) {
  const size_t count = bytes / sizeof(float);
  const auto self = static_cast<size_t>(rank);
  const auto ranks = static_cast<size_t>(board.ranks());
  RankFigures figures;
  figures.wrong += checked_operation(ring, count, self, ranks);
  value_or_throw(board.barrier());
  timed_operations(ring, count, iterations, &figures);
  figures.wrong += checked_operation(ring, count, self, ranks);
  board.figures[self] = figures;
  value_or_throw(board.barrier());
}

Line summarise(const Board& board, size_t bytes) {
  Line line{.bytes = bytes};
  for (int rank = 0; rank < board.ranks(); ++rank) {
    const RankFigures& figures = board.figures[static_cast<size_t>(rank)];
    line.seconds = std::max(line.seconds, figures.seconds);
    line.cpu_seconds += figures.cpu_seconds;
    line.wrong += figures.wrong;
  }
  return line;
}

void print_header(const Options& options, const std::string& device) {
  fmt::print("# ring all-reduce, {} ranks, device {}\n", options.ranks, device);
  fmt::print("#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8} {:>7}\n", "size", "count", "type",
             "redop", "root", "time", "algbw", "busbw", "#wrong");
  fmt::print("#{:>11} {:>12} {:>8} {:>6} {:>5} {:>10} {:>8} {:>8}\n", "(B)", "(elements)", "", "",
             "", "(us)", "(GB/s)", "(GB/s)");
}

void print_line(const Line& line, int ranks) {
  fmt::print("{:>12} {:>12} {:>8} {:>6} {:>5} {:>10.1f} {:>8.3f} {:>8.3f} {:>7}\n", line.bytes,
             line.bytes / sizeof(float), "float", "sum", -1, line.seconds * 1e6,
             line.algorithm_bps() / 8e9, line.bus_bps(ranks) / 8e9, line.wrong);
  std::fflush(stdout);
}

void write_json(const Options& options, const std::vector<Line>& lines) {
  nlohmann::json results = nlohmann::json::array();
  for (const Line& line : lines) {
    results.push_back({{"size_bytes", line.bytes},
                       {"time_ns", line.seconds * 1e9},
                       {"algbw_bps", line.algorithm_bps()},
                       {"busbw_bps", line.bus_bps(options.ranks)},
                       {"cpu_ns", line.cpu_seconds * 1e9},
                       {"wrong", line.wrong}});
  }
  const nlohmann::json report = {
      {"schema_version", 1}, {"ranks", options.ranks}, {"results", results}};
  std::ofstream file(options.json_file);
  file << report.dump(2) << '\n';
  if (file.flush()) return;
  throw std::runtime_error(
      fmt::format("cannot write {}: choose another --out_json_file", options.json_file));
}

void run_rank(const Options& options, Board& board, int rank) {
  const bool reports = rank == 0;
  Host host({.path = options.plugin}, stderr_log(reports));
  host.start();
  Ring ring(host, board, rank, options.max_bytes / sizeof(float));
  if (reports) print_header(options, host.device_name());

  std::vector<Line> lines;
  uint64_t wrong = 0;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    measure_size(ring, board, rank, bytes, options.iterations);
    lines.push_back(summarise(board, bytes));
    wrong += lines.back().wrong;
    if (reports) print_line(lines.back(), options.ranks);
  }
  ring.close();
  if (wrong > 0) {
    throw std::runtime_error(fmt::format("{} elements are wrong: data was damaged", wrong));
  }
  if (reports && !options.json_file.empty()) write_json(options, lines);
}

// One rank of a job on several hosts.
bool run_alone(const Options& options, const RankBody& body) {
  std::unique_ptr<RemoteBoard> board;
  try {
    board = value_or_throw(
        RemoteBoard::join(options.ranks, options.rank, options.root, options.port, kBoardLimit));
    body(*board, options.rank);
    return true;
  } catch (const std::exception& error) {
    const std::string why = fmt::format("rank {}: {}", options.rank, error.what());
    fmt::print(stderr, "{}\n", why);
    if (board) board->give_up(why);
    return false;
  }
}

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  using namespace pacecar::nccl;
  Options options;
  CLI::App app("A checked ring all-reduce over a net plugin, as NCCL would run it.");
  const CLI::AsSizeValue size(false);
  app.add_option("--plugin", options.plugin, "libnccl-net-pacecar.so")->required();
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(2, kMaxRanks));
  auto* rank = app.add_option("--rank", options.rank, "be this one rank; the others run elsewhere")
                   ->check(CLI::Range(0, kMaxRanks - 1));
  app.add_option("--root", options.root, "host of rank 0, for the others")->needs(rank);
  app.add_option("--port", options.port, "of rank 0, where the ranks meet")->needs(rank);
  app.add_option("-b,--minbytes", options.min_bytes, "first size")->transform(size);
  app.add_option("-e,--maxbytes", options.max_bytes, "last size")->transform(size);
  app.add_option("-f,--stepfactor", options.factor, "from size to size")
      ->check(CLI::Range(2, 1024));
  app.add_option("-n,--iters", options.iterations, "timed operations per size")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--out_json_file", options.json_file, "where the figures go as JSON");
  CLI11_PARSE(app, argc, argv);
  if (options.min_bytes < sizeof(float) || options.min_bytes > options.max_bytes) {
    fmt::print(stderr, "--minbytes must be from 4 to --maxbytes\n");
    return 2;
  }
  if (options.rank >= options.ranks || (options.rank > 0 && options.root.empty())) {
    fmt::print(stderr, "--rank must be below --ranks, and all but rank 0 need --root HOST\n");
    return 2;
  }
  const auto body = [&](Board& board, int self) { run_rank(options, board, self); };
  if (options.rank == kAllRanks) return run_ranks(options.ranks, body) ? 0 : 1;
  return run_alone(options, body) ? 0 : 1;
}
