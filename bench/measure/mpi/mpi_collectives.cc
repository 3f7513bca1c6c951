// Collectives of any MPI library: each result is checked at every rank, then timed. Prints JSON.
//
//   mpi_collectives [--sizes LEAST:MOST:FACTOR] [--iterations N] [--only OP,OP] [--one-sided]
//
// Sizes are bytes of one rank: its input of a reduction, a broadcast or an all-gather, and its data
// for all ranks in an all-to-all. Exit codes: 0 right, 1 a wrong result, 2 wrong usage.
#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

// Element `at` of rank `from` in operation number `turn`; small, so that sums are exact.
int64_t value(int from, size_t at, uint64_t turn) {
  return static_cast<int64_t>((static_cast<uint64_t>(from) * 7919 + at * 31 + turn) % 4096);
}

struct World {
  int rank = 0;
  int size = 1;
};

// Data of one operation: `each` words, for every rank where it says so.
struct Data {
  const int64_t* in;
  int64_t* out;
  int each;
};

enum class Blocks : uint8_t { kOne, kOfEachRank };
// The ranks whose data a result is, or is the sum of. kOwner: the rank with the number of the
// block.
enum class Source : uint8_t { kAll, kUpToThis, kRoot, kOwner, kBefore };

struct Collective {
  const char* name;
  Blocks in;
  Blocks out;
  Source source;
  void (*run)(const Data& data, World world);
  bool only_root = false;  // has a result; it is rank 0
};

int before(World world) { return (world.rank + world.size - 1) % world.size; }

// Word `at` of that block of the result. An input of one block for each rank is divided: this
// rank's block comes from there.
int64_t expected(const Collective& collective, int block, size_t at, size_t each, World world,
                 uint64_t turn) {
  if (collective.in == Blocks::kOfEachRank) at += static_cast<size_t>(world.rank) * each;
  const auto sum_of = [&](int first, int ranks) {
    int64_t sum = 0;
    for (int rank = first; rank < first + ranks; ++rank) sum += value(rank, at, turn);
    return sum;
  };
  switch (collective.source) {
    case Source::kAll:
      return sum_of(0, world.size);
    case Source::kUpToThis:
      return sum_of(0, world.rank + 1);
    case Source::kRoot:
      return sum_of(0, 1);
    case Source::kOwner:
      return sum_of(block, 1);
    case Source::kBefore:
      return sum_of(before(world), 1);
  }
  return -1;
}

using enum Blocks;
using enum Source;
constexpr Collective kCollectives[] = {
    {"allreduce", kOne, kOne, kAll,
     [](const Data& data, World) {
       MPI_Allreduce(data.in, data.out, data.each, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
     }},
    {"reduce", kOne, kOne, kAll,
     [](const Data& data, World) {
       MPI_Reduce(data.in, data.out, data.each, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
     },
     true},
    {"reduce_scatter", kOfEachRank, kOne, kAll,
     [](const Data& data, World) {
       MPI_Reduce_scatter_block(data.in, data.out, data.each, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
     }},
    {"scan", kOne, kOne, kUpToThis,
     [](const Data& data, World) {
       MPI_Scan(data.in, data.out, data.each, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
     }},
    {"bcast", kOne, kOne, kRoot,
     [](const Data& data, World world) {
       if (world.rank == 0) std::copy_n(data.in, data.each, data.out);
       MPI_Bcast(data.out, data.each, MPI_INT64_T, 0, MPI_COMM_WORLD);
     }},
    {"allgather", kOne, kOfEachRank, kOwner,
     [](const Data& data, World) {
       MPI_Allgather(data.in, data.each, MPI_INT64_T, data.out, data.each, MPI_INT64_T,
                     MPI_COMM_WORLD);
     }},
    {"gather", kOne, kOfEachRank, kOwner,
     [](const Data& data, World) {
       MPI_Gather(data.in, data.each, MPI_INT64_T, data.out, data.each, MPI_INT64_T, 0,
                  MPI_COMM_WORLD);
     },
     true},
    {"scatter", kOfEachRank, kOne, kRoot,
     [](const Data& data, World) {
       MPI_Scatter(data.in, data.each, MPI_INT64_T, data.out, data.each, MPI_INT64_T, 0,
                   MPI_COMM_WORLD);
     }},
    {"alltoall", kOfEachRank, kOfEachRank, kOwner,
     [](const Data& data, World) {
       MPI_Alltoall(data.in, data.each, MPI_INT64_T, data.out, data.each, MPI_INT64_T,
                    MPI_COMM_WORLD);
     }},
    {"sendrecv", kOne, kOne, kBefore,
     [](const Data& data, World world) {
       MPI_Sendrecv(data.in, data.each, MPI_INT64_T, (world.rank + 1) % world.size, 7, data.out,
                    data.each, MPI_INT64_T, before(world), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
     }},
};

// MPI's one-sided operations: puts with a fence, and fetch-and-add. Whether all results are right.
bool one_sided_is_right(World world, uint64_t turn) {
  const auto size = static_cast<size_t>(world.size);
  std::vector<int64_t> shared(size + 1, 0);
  MPI_Win window{};
  MPI_Win_create(shared.data(), static_cast<MPI_Aint>(shared.size() * sizeof(int64_t)),
                 sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  std::vector<int64_t> mine(size);
  for (size_t peer = 0; peer < size; ++peer) {
    mine[peer] = value(world.rank, peer, turn);
    MPI_Put(&mine[peer], 1, MPI_INT64_T, static_cast<int>(peer), world.rank, 1, MPI_INT64_T,
            window);
  }
  MPI_Win_fence(0, window);
  const int64_t one = 1;
  constexpr int kAdditions = 20;
  for (int i = 0; i < kAdditions; ++i) {
    int64_t before = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, world.size, MPI_SUM, window);
    MPI_Win_unlock(0, window);
  }
  MPI_Win_fence(0, window);
  bool right = world.rank != 0 || shared[size] == int64_t{kAdditions} * world.size;
  for (size_t peer = 0; peer < size; ++peer) {
    right &= shared[peer] == value(static_cast<int>(peer), static_cast<size_t>(world.rank), turn);
  }
  MPI_Win_free(&window);
  return right;
}

bool all_agree(bool right) {
  int mine = right ? 1 : 0;
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all == 1;
}

struct Outcome {
  bool right = true;
  double seconds = 0;  // of one operation, at the slowest rank
};

Outcome measure(const Collective& collective, size_t bytes, int iterations, World world) {
  const auto ranks = static_cast<size_t>(world.size);
  const size_t count = std::max<size_t>(bytes / sizeof(int64_t), 1);
  // An input for all ranks is divided among them.
  const size_t each = collective.in == kOne ? count : std::max<size_t>(count / ranks, 1);
  const auto words = [&](Blocks blocks) { return blocks == kOne ? each : each * ranks; };
  std::vector<int64_t> in(words(collective.in));
  std::vector<int64_t> out(words(collective.out));
  const Data data{in.data(), out.data(), static_cast<int>(each)};
  Outcome outcome;
  for (uint64_t turn = 1; turn <= 2; ++turn) {  // also warms up
    for (size_t at = 0; at < in.size(); ++at) in[at] = value(world.rank, at, turn);
    std::ranges::fill(out, -1);
    collective.run(data, world);
    if (collective.only_root && world.rank != 0) continue;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto block = static_cast<int>(i / each);
      outcome.right &= out[i] == expected(collective, block, i % each, each, world, turn);
    }
  }
  outcome.right = all_agree(outcome.right);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) collective.run(data, world);
  double mine = (MPI_Wtime() - begin) / std::max(iterations, 1);
  MPI_Allreduce(&mine, &outcome.seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Collectives of MPI, checked and timed.", "mpi_collectives");
  std::vector<size_t> sizes = {8, 1 << 20, 8};
  int iterations = 20;
  std::vector<std::string> only;
  bool one_sided = false;
  app.add_option("--sizes", sizes, "LEAST:MOST:FACTOR in bytes")->delimiter(':');
  app.add_option("--iterations", iterations, "operations timed");
  app.add_option("--only", only, "operations")->delimiter(',');
  app.add_flag("--one-sided", one_sided, "windows too; not every MPI has them on every network");
  CLI11_PARSE(app, argc, argv);
  if (sizes.size() != 3 || sizes[0] == 0 || sizes[0] > sizes[1] || sizes[2] < 2) {
    fmt::print(stderr, "--sizes {}: give LEAST:MOST:FACTOR, such as 8:1048576:8\n",
               fmt::join(sizes, ":"));
    return 2;
  }

  MPI_Init(&argc, &argv);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  bool right = true;
  std::string results;
  for (const Collective& collective : kCollectives) {
    const bool wanted = only.empty() || std::ranges::count(only, collective.name) > 0;
    for (size_t bytes = sizes[0]; wanted && bytes <= sizes[1]; bytes *= sizes[2]) {
      const Outcome outcome = measure(collective, bytes, iterations, world);
      right &= outcome.right;
      results += fmt::format(R"({}{{"op":"{}","size_bytes":{},"seconds":{:.9f},"right":{}}})",
                             results.empty() ? "" : ",\n", collective.name, bytes, outcome.seconds,
                             outcome.right);
    }
  }
  if (one_sided) {
    const bool outcome = all_agree(one_sided_is_right(world, 3));
    right &= outcome;
    results += fmt::format(R"(,{}{{"op":"one_sided","right":{}}})", '\n', outcome);
  }
  if (world.rank == 0) {
    fmt::print("{{\"ranks\":{},\"results\":[\n{}\n]}}\n", world.size, results);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
