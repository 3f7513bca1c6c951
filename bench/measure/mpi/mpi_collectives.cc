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
#include <functional>
#include <iterator>
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

struct Buffers {
  std::vector<int64_t> in;
  std::vector<int64_t> out;
};

// One operation on `count` elements per rank: the sizes of `in` and `out`, the call, and the
// elements that must then be in `out`.
struct Collective {
  const char* name;
  std::function<size_t(size_t count, World)> in_words;
  std::function<size_t(size_t count, World)> out_words;
  std::function<void(Buffers&, size_t count, World)> run;
  std::function<int64_t(size_t at, size_t count, World, uint64_t turn)> expected;
  bool only_root = false;  // which is rank 0
};

size_t same(size_t count, World /*world*/) { return count; }
size_t of_all(size_t count, World world) { return count * static_cast<size_t>(world.size); }
// `count` elements, rounded to equal parts for all ranks.
size_t parts(size_t count, World world) {
  const auto size = static_cast<size_t>(world.size);
  return std::max<size_t>(count / size, 1) * size;
}
size_t one_part(size_t count, World world) {
  return parts(count, world) / static_cast<size_t>(world.size);
}

int64_t sum_at(size_t at, World world, uint64_t turn) {
  int64_t sum = 0;
  for (int rank = 0; rank < world.size; ++rank) sum += value(rank, at, turn);
  return sum;
}

int words(size_t count) { return static_cast<int>(count); }

std::vector<Collective> reductions() {
  return {
      {"allreduce", same, same,
       [](Buffers& buffers, size_t count, World) {
         MPI_Allreduce(buffers.in.data(), buffers.out.data(), words(count), MPI_INT64_T, MPI_SUM,
                       MPI_COMM_WORLD);
       },
       [](size_t at, size_t, World world, uint64_t turn) { return sum_at(at, world, turn); }},
      {"reduce", same, same,
       [](Buffers& buffers, size_t count, World) {
         MPI_Reduce(buffers.in.data(), buffers.out.data(), words(count), MPI_INT64_T, MPI_SUM, 0,
                    MPI_COMM_WORLD);
       },
       [](size_t at, size_t, World world, uint64_t turn) { return sum_at(at, world, turn); }, true},
      {"reduce_scatter", parts, one_part,
       [](Buffers& buffers, size_t count, World world) {
         MPI_Reduce_scatter_block(buffers.in.data(), buffers.out.data(),
                                  words(one_part(count, world)), MPI_INT64_T, MPI_SUM,
                                  MPI_COMM_WORLD);
       },
       [](size_t at, size_t count, World world, uint64_t turn) {
         return sum_at(static_cast<size_t>(world.rank) * one_part(count, world) + at, world, turn);
       }},
      {"scan", same, same,
       [](Buffers& buffers, size_t count, World) {
         MPI_Scan(buffers.in.data(), buffers.out.data(), words(count), MPI_INT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
       },
       [](size_t at, size_t, World world, uint64_t turn) {
         return sum_at(at, {.size = world.rank + 1}, turn);
       }},
  };
}

std::vector<Collective> movements() {
  return {
      {"bcast", same, same,
       [](Buffers& buffers, size_t count, World world) {
         if (world.rank == 0) buffers.out = buffers.in;
         MPI_Bcast(buffers.out.data(), words(count), MPI_INT64_T, 0, MPI_COMM_WORLD);
       },
       [](size_t at, size_t, World, uint64_t turn) { return value(0, at, turn); }},
      {"allgather", same, of_all,
       [](Buffers& buffers, size_t count, World) {
         MPI_Allgather(buffers.in.data(), words(count), MPI_INT64_T, buffers.out.data(),
                       words(count), MPI_INT64_T, MPI_COMM_WORLD);
       },
       [](size_t at, size_t count, World, uint64_t turn) {
         return value(static_cast<int>(at / count), at % count, turn);
       }},
      {"gather", same, of_all,
       [](Buffers& buffers, size_t count, World) {
         MPI_Gather(buffers.in.data(), words(count), MPI_INT64_T, buffers.out.data(), words(count),
                    MPI_INT64_T, 0, MPI_COMM_WORLD);
       },
       [](size_t at, size_t count, World, uint64_t turn) {
         return value(static_cast<int>(at / count), at % count, turn);
       },
       true},
      {"scatter", parts, one_part,
       [](Buffers& buffers, size_t count, World world) {
         const int each = words(one_part(count, world));
         MPI_Scatter(buffers.in.data(), each, MPI_INT64_T, buffers.out.data(), each, MPI_INT64_T, 0,
                     MPI_COMM_WORLD);
       },
       [](size_t at, size_t count, World world, uint64_t turn) {
         return value(0, static_cast<size_t>(world.rank) * one_part(count, world) + at, turn);
       }},
      {"alltoall", parts, parts,
       [](Buffers& buffers, size_t count, World world) {
         const int each = words(one_part(count, world));
         MPI_Alltoall(buffers.in.data(), each, MPI_INT64_T, buffers.out.data(), each, MPI_INT64_T,
                      MPI_COMM_WORLD);
       },
       [](size_t at, size_t count, World world, uint64_t turn) {
         const size_t each = one_part(count, world);
         return value(static_cast<int>(at / each),
                      static_cast<size_t>(world.rank) * each + at % each, turn);
       }},
      {"sendrecv", same, same,
       [](Buffers& buffers, size_t count, World world) {
         MPI_Sendrecv(buffers.in.data(), words(count), MPI_INT64_T, (world.rank + 1) % world.size,
                      7, buffers.out.data(), words(count), MPI_INT64_T,
                      (world.rank + world.size - 1) % world.size, 7, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
       },
       [](size_t at, size_t, World world, uint64_t turn) {
         return value((world.rank + world.size - 1) % world.size, at, turn);
       }},
  };
}

std::vector<Collective> collectives() {
  std::vector<Collective> all = reductions();
  std::ranges::move(movements(), std::back_inserter(all));
  return all;
}

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
  const size_t count = std::max<size_t>(bytes / sizeof(int64_t), 1);
  Buffers buffers{std::vector<int64_t>(collective.in_words(count, world)),
                  std::vector<int64_t>(collective.out_words(count, world))};
  Outcome outcome;
  for (uint64_t turn = 1; turn <= 2; ++turn) {  // also warms up
    for (size_t at = 0; at < buffers.in.size(); ++at) buffers.in[at] = value(world.rank, at, turn);
    std::ranges::fill(buffers.out, -1);
    collective.run(buffers, count, world);
    if (collective.only_root && world.rank != 0) continue;
    for (size_t at = 0; at < buffers.out.size(); ++at) {
      outcome.right &= buffers.out[at] == collective.expected(at, count, world, turn);
    }
  }
  outcome.right = all_agree(outcome.right);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) collective.run(buffers, count, world);
  double mine = (MPI_Wtime() - begin) / std::max(iterations, 1);
  MPI_Allreduce(&mine, &outcome.seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return outcome;
}

struct Sizes {
  size_t least = 8;
  size_t most = 1 << 20;
  size_t factor = 8;
};

bool parse_sizes(const std::string& text, Sizes* sizes) {
  const int read =
      std::sscanf(text.c_str(), "%zu:%zu:%zu", &sizes->least, &sizes->most, &sizes->factor);
  return read == 3 && sizes->least > 0 && sizes->least <= sizes->most && sizes->factor > 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Collectives of MPI, checked and timed.", "mpi_collectives");
  std::string range = "8:1048576:8";
  int iterations = 20;
  std::vector<std::string> only;
  bool one_sided = false;
  app.add_option("--sizes", range, "LEAST:MOST:FACTOR in bytes");
  app.add_option("--iterations", iterations, "operations timed");
  app.add_option("--only", only, "operations")->delimiter(',');
  app.add_flag("--one-sided", one_sided, "windows too; not every MPI has them on every network");
  CLI11_PARSE(app, argc, argv);
  Sizes sizes;
  if (!parse_sizes(range, &sizes)) {
    fmt::print(stderr, "--sizes {}: give LEAST:MOST:FACTOR, such as 8:1048576:8\n", range);
    return 2;
  }

  MPI_Init(&argc, &argv);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  bool right = true;
  std::string results;
  for (const Collective& collective : collectives()) {
    const bool wanted = only.empty() || std::ranges::count(only, collective.name) > 0;
    for (size_t bytes = sizes.least; wanted && bytes <= sizes.most; bytes *= sizes.factor) {
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
