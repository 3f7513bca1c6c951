// One rank of an NCCL job: runs operations of several sizes, checks every element and takes times.
//   collectives NCCL probe
//   collectives NCCL RANK RANKS GPU ID_FILE OPERATIONS BYTES:ITERATIONS,... REPETITIONS
//               [SECONDS [PAUSE]]
// NCCL is the library's file. `bench/nccl/run` starts this program and reads its output: a line of
// JSON per operation and size, with the seconds of one operation in each repetition and the seconds
// of processor time that one took. With SECONDS all operations and sizes are measured again and
// again for that time, and the exit code is 1 when an element is wrong: nobody may read the output.
// With PAUSE, in seconds, operations run one by one for that time, and each is timed. One thread.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/nccl/gpu/device.h"

namespace pacecar::nccl {
namespace {

// Each operation has a function that computes the expected result of a rank.
//
// A result is a list of blocks of `count` elements. Element j of a block is the sum of input
// element `first_index` + j over ranks `first_rank` ... `first_rank` + `ranks` - 1. Each input
// element is a hash of rank, index and `salt`, a whole number below 2^20. So sums over up to 16
// ranks are exact in float, in any order. An element from a wrong index, rank or operation has
// another value.

constexpr int kMaxRanks = 16;
constexpr int kRoot = 0;

// A rank's buffers in one operation. Sizes are in elements.
struct Call {
  const float* send = nullptr;
  float* receive = nullptr;
  size_t count = 0;  // NCCL's count; per rank if Operation::divides
};

struct Block {
  int first_rank = 0;
  int ranks = 1;
  size_t first_index = 0;
};

enum class InPlace { kNever, kSameBuffer, kInReceived, kInSent };

struct Operation {
  const char* name;
  bool divides;      // true: the reported size is `count` x ranks (the larger buffer)
  bool sends_all;    // true: the send buffer holds `count` elements per rank
  InPlace in_place;  // which buffer contains the other in place
  int (*launch)(const Communicator& job, const Call& call);  // NCCL's result
  std::vector<Block> (*result)(int rank, int ranks, size_t count);
};

int all_reduce(const Communicator& job, const Call& call) {
  return nccl().all_reduce(call.send, call.receive, call.count, kFloat, kSum, job.handle(),
                           job.stream());
}

int all_gather(const Communicator& job, const Call& call) {
  return nccl().all_gather(call.send, call.receive, call.count, kFloat, job.handle(), job.stream());
}

int reduce_scatter(const Communicator& job, const Call& call) {
  return nccl().reduce_scatter(call.send, call.receive, call.count, kFloat, kSum, job.handle(),
                               job.stream());
}

int broadcast(const Communicator& job, const Call& call) {
  return nccl().broadcast(call.send, call.receive, call.count, kFloat, kRoot, job.handle(),
                          job.stream());
}

int reduce(const Communicator& job, const Call& call) {
  return nccl().reduce(call.send, call.receive, call.count, kFloat, kSum, kRoot, job.handle(),
                       job.stream());
}

int before(int rank, int ranks) { return (rank + ranks - 1) % ranks; }
int after(int rank, int ranks) { return (rank + 1) % ranks; }

void send_to(const Communicator& job, int peer, const float* data, size_t count) {
  require_nccl(nccl().send(data, count, kFloat, peer, job.handle(), job.stream()), "ncclSend");
}

void receive_from(const Communicator& job, int peer, float* data, size_t count) {
  require_nccl(nccl().receive(data, count, kFloat, peer, job.handle(), job.stream()), "ncclRecv");
}

int send_receive(const Communicator& job, const Call& call) {
  require_nccl(nccl().group_start(), "ncclGroupStart");
  send_to(job, after(job.rank(), job.ranks()), call.send, call.count);
  receive_from(job, before(job.rank(), job.ranks()), call.receive, call.count);
  return nccl().group_end();
}

int all_to_all(const Communicator& job, const Call& call) {
  require_nccl(nccl().group_start(), "ncclGroupStart");
  for (int peer = 0; peer < job.ranks(); ++peer) {
    const size_t place = static_cast<size_t>(peer) * call.count;
    send_to(job, peer, call.send + place, call.count);
    receive_from(job, peer, call.receive + place, call.count);
  }
  return nccl().group_end();
}

// All send to the root at once.
int incast(const Communicator& job, const Call& call) {
  require_nccl(nccl().group_start(), "ncclGroupStart");
  send_to(job, kRoot, call.send, call.count);
  for (int peer = 0; peer < job.ranks() && job.rank() == kRoot; ++peer) {
    receive_from(job, peer, call.receive + static_cast<size_t>(peer) * call.count, call.count);
  }
  return nccl().group_end();
}

using Blocks = std::vector<Block>;

Blocks sum_of_all(int, int ranks, size_t) { return {{.ranks = ranks}}; }

Blocks own_share_of_sum(int rank, int ranks, size_t count) {
  return {{.ranks = ranks, .first_index = static_cast<size_t>(rank) * count}};
}

Blocks of_root(int, int, size_t) { return {{.first_rank = kRoot}}; }

Blocks sum_at_root(int rank, int ranks, size_t) {
  return rank == kRoot ? Blocks{{.ranks = ranks}} : Blocks{};
}

Blocks of_rank_before(int rank, int ranks, size_t) { return {{.first_rank = before(rank, ranks)}}; }

Blocks one_of_each_rank(int, int ranks, size_t) {
  Blocks blocks;
  for (int peer = 0; peer < ranks; ++peer) blocks.push_back({.first_rank = peer});
  return blocks;
}

Blocks own_share_of_each_rank(int rank, int ranks, size_t count) {
  Blocks blocks = one_of_each_rank(rank, ranks, count);
  for (Block& block : blocks) block.first_index = static_cast<size_t>(rank) * count;
  return blocks;
}

Blocks one_of_each_at_root(int rank, int ranks, size_t count) {
  return rank == kRoot ? one_of_each_rank(rank, ranks, count) : Blocks{};
}

constexpr std::array kOperations = {
    Operation{"allreduce", false, false, InPlace::kSameBuffer, all_reduce, sum_of_all},
    Operation{"allgather", true, false, InPlace::kInReceived, all_gather, one_of_each_rank},
    Operation{"reducescatter", true, true, InPlace::kInSent, reduce_scatter, own_share_of_sum},
    Operation{"broadcast", false, false, InPlace::kSameBuffer, broadcast, of_root},
    Operation{"reduce", false, false, InPlace::kSameBuffer, reduce, sum_at_root},
    Operation{"sendrecv", false, false, InPlace::kNever, send_receive, of_rank_before},
    Operation{"alltoall", true, true, InPlace::kNever, all_to_all, own_share_of_each_rank},
    Operation{"incast", true, false, InPlace::kNever, incast, one_of_each_at_root},
};

float element(uint64_t salt, int rank, size_t index) {
  constexpr uint64_t kIndexFactor = 0x9e3779b97f4a7c15;  // odd multiplier with evenly spread bits
  constexpr uint64_t kSourceFactor = 0xc2b2ae3d27d4eb4f;
  constexpr int kUnusedBits = 64 - 20;
  const uint64_t source = salt * kMaxRanks + static_cast<uint64_t>(rank);
  uint64_t bits = (index + 1) * kIndexFactor ^ (source + 1) * kSourceFactor;
  bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93;
  return static_cast<float>(bits >> kUnusedBits);
}

float expected(const Block& block, uint64_t salt, size_t index) {
  float sum = 0;
  for (int rank = block.first_rank; rank < block.first_rank + block.ranks; ++rank) {
    sum += element(salt, rank, block.first_index + index);
  }
  return sum;
}

// The number of wrong elements of `received`; prints the first of them on stderr.
size_t count_wrong(const Operation& operation, const Communicator& job, uint64_t salt, size_t count,
                   std::span<const float> received) {
  size_t wrong = 0;
  size_t place = 0;
  for (const Block& block : operation.result(job.rank(), job.ranks(), count)) {
    for (size_t index = 0; index < count; ++index, ++place) {
      const float wanted = expected(block, salt, index);
      if (received[place] == wanted) continue;
      if (wrong++ > 0) continue;
      std::fprintf(stderr, "rank %d, %s of %zu: element %zu is %.1f, not %.1f\n", job.rank(),
                   operation.name, count, place, static_cast<double>(received[place]),
                   static_cast<double>(wanted));
    }
  }
  return wrong;
}

constexpr size_t kWarmUp = 5;

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Size {
  size_t bytes = 0;
  size_t iterations = 0;
};

struct Options {
  int rank = 0;
  int ranks = 0;
  int gpu = 0;
  std::string id_file;
  size_t repetitions = 0;
  std::optional<double> seconds{};
  std::optional<double> pause_s{};  // between operations that are timed one by one
  std::vector<const Operation*> operations{};
  std::vector<Size> sizes{};
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

const Operation* operation_called(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (operation.name == name) return &operation;
  }
  end_with("there is no operation '" + name + "': see bench/nccl/run --list");
}

constexpr int kLeastArguments = 9;

// `bench/nccl/run` has checked the values; in a call by hand, a wrong value may throw.
Options parse(int argc, char** argv) {
  Options options{.rank = std::stoi(argv[2]),
                  .ranks = std::stoi(argv[3]),
                  .gpu = std::stoi(argv[4]),
                  .id_file = argv[5],
                  .repetitions = std::stoul(argv[8])};
  if (argc > kLeastArguments) options.seconds = std::stod(argv[kLeastArguments]);
  if (argc > kLeastArguments + 1) options.pause_s = std::stod(argv[kLeastArguments + 1]);
  for (const std::string& name : split(argv[6])) {
    options.operations.push_back(operation_called(name));
  }
  for (const std::string& size : split(argv[7])) {  // BYTES:ITERATIONS
    options.sizes.push_back({std::stoul(size), std::stoul(size.substr(size.find(':') + 1))});
  }
  return options;
}

Options options_or_end(int argc, char** argv) {
  const auto sound = [](const Options& options) {
    return options.ranks >= 2 && options.ranks <= kMaxRanks && options.rank >= 0 &&
           options.rank < options.ranks && options.gpu >= 0 && options.repetitions > 0 &&
           std::ranges::all_of(options.sizes, [](const Size& size) {
             return size.bytes >= sizeof(float) && size.iterations > 0;
           });
  };
  try {
    if (argc >= kLeastArguments && argc <= kLeastArguments + 2) {
      Options options = parse(argc, argv);
      if (sound(options)) return options;
    }
  } catch (const std::exception&) {  // a value that is not a number
  }
  end_with("this program is one rank of a job: bench/nccl/run starts it");
}

// The number of GPUs; 0 when the first cannot be used, with the reason in `reason`.
int usable_gpus(std::string& reason) {
  reason = load_driver();
  if (!reason.empty()) return 0;
  int gpus = 0;
  int found = driver().init(0);
  if (found == kSuccess) found = driver().device_count(&gpus);
  Device device = 0;
  Context context = nullptr;
  if (found == kSuccess && gpus > 0) found = driver().device_get(&device, 0);
  // A GPU that is listed may still refuse a context.
  if (found == kSuccess && gpus > 0) found = driver().retain_context(&context, device);
  reason = driver_error(found);
  return found == kSuccess ? gpus : 0;
}

std::string quoted(std::string text) {
  for (char& letter : text) {
    if (letter == '"' || letter == '\\' || letter < ' ') letter = '\'';
  }
  return '"' + text + '"';
}

int probe(const std::string& nccl_library) {
  std::string reason;
  const int gpus = usable_gpus(reason);
  const std::string nccl_reason = load_nccl(nccl_library);
  int nccl_version = 0;
  int cuda_version = 0;
  if (nccl_reason.empty()) nccl().version(&nccl_version);
  if (driver().version != nullptr) driver().version(&cuda_version);
  std::printf(
      "{\"gpus\": %d, \"reason\": %s, \"nccl\": %d, \"nccl_reason\": %s, "
      "\"cuda_driver\": %d}\n",
      gpus, quoted(reason).c_str(), nccl_version, quoted(nccl_reason).c_str(), cuda_version);
  return 0;
}

class Rank {
 public:
  explicit Rank(const Options& options)
      : options_(options),
        job_(options.rank, options.ranks, options.gpu, options.id_file),
        one_(largest(options)),
        other_(one_.elements()),
        host_(one_.elements()) {}

  // The number of wrong elements.
  size_t run() {
    size_t wrong = 0;
    for (const Operation* operation : options_.operations) {
      for (const Size& size : options_.sizes) {
        const auto begin = Clock::now();
        do {
          wrong += measure(*operation, size);
        } while (!options_.pause_s && goes_on(begin));
      }
    }
    job_.barrier(scratch_);  // no rank leaves while another still needs it
    return wrong;
  }

 private:
  static size_t largest(const Options& options) {
    size_t bytes = 0;
    for (const Size& size : options.sizes) bytes = std::max(bytes, size.bytes);
    return bytes / sizeof(float);
  }

  // Rank 0's value, in all ranks.
  double from_root(double value) {
    host_[0] = job_.rank() == kRoot ? static_cast<float>(value) : 0;
    to_device(scratch_.data(), host_, 1);
    job_.barrier(scratch_);  // a sum
    to_host(host_, scratch_.data(), 1);
    return host_[0];
  }

  // How much of `options_.seconds` is left since `begin`, by rank 0's clock.
  double left(Clock::time_point begin) {
    return from_root(options_.seconds.value_or(0) - Seconds(Clock::now() - begin).count());
  }

  // Whether the ranks measure the same once more.
  bool goes_on(Clock::time_point begin) {
    return options_.seconds.value_or(0) > 0 && left(begin) > 0;
  }

  size_t measure(const Operation& operation, const Size& size) {
    const auto ranks = static_cast<size_t>(job_.ranks());
    const size_t count = size.bytes / sizeof(float) / (operation.divides ? ranks : 1);
    if (count == 0) return 0;  // less than one element per rank
    size_t wrong = operation.in_place == InPlace::kNever ? 0 : in_place(operation, count);
    fill(operation, one_.data(), count);
    other_.poison();
    const Call call{.send = one_.data(), .receive = other_.data(), .count = count};
    launch(operation, call, std::min(kWarmUp, size.iterations));
    job_.wait();
    const double processor_before = processor_seconds();
    starts_.clear();
    const std::vector<double> seconds =
        options_.pause_s ? timed_singly(operation, call) : timed(operation, call, size.iterations);
    const double processor = processor_seconds() - processor_before;
    wrong += checked(operation, count, call.receive);
    std::printf(
        "{\"op\": \"%s\", \"bytes\": %zu, \"count\": %zu, \"iterations\": %zu, "
        "\"wrong\": %zu, \"seconds\": ",
        operation.name, size.bytes, count, size.iterations, wrong);
    print_list(seconds);
    std::printf(", \"starts\": ");
    print_list(starts_);
    std::printf(", \"processor_seconds\": %.9f}\n",
                processor / static_cast<double>(size.iterations * seconds.size()));
    std::fflush(stdout);
    return wrong;
  }

  // This rank's input, under a new salt, so that data of an earlier operation is detected.
  void fill(const Operation& operation, float* send, size_t count) {
    ++salt_;
    const size_t elements = operation.sends_all ? count * static_cast<size_t>(job_.ranks()) : count;
    for (size_t i = 0; i < elements; ++i) host_[i] = element(salt_, job_.rank(), i);
    to_device(send, host_, elements);
  }

  size_t checked(const Operation& operation, size_t count, const float* received) {
    const size_t elements = operation.result(job_.rank(), job_.ranks(), count).size() * count;
    to_host(host_, received, elements);
    return count_wrong(operation, job_, salt_, count, {host_.data(), elements});
  }

  size_t in_place(const Operation& operation, size_t count) {
    const size_t own = static_cast<size_t>(job_.rank()) * count;
    float* send = one_.data() + (operation.in_place == InPlace::kInReceived ? own : 0);
    float* receive = one_.data() + (operation.in_place == InPlace::kInSent ? own : 0);
    one_.poison();
    fill(operation, send, count);
    launch(operation, {.send = send, .receive = receive, .count = count}, 1);
    job_.wait();
    return checked(operation, count, receive);
  }

  void launch(const Operation& operation, const Call& call, size_t times) const {
    for (size_t i = 0; i < times; ++i) {
      require_nccl(operation.launch(job_, call), operation.name);
    }
  }

  // The processor time of all threads of this rank.
  static double processor_seconds() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }

  // The seconds that one operation took, in each repetition.
  std::vector<double> timed(const Operation& operation, const Call& call, size_t iterations) {
    std::vector<double> seconds;
    for (size_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      job_.barrier(scratch_);
      const auto begin = Clock::now();
      launch(operation, call, iterations);
      job_.wait();
      const Seconds taken = Clock::now() - begin;
      seconds.push_back(taken.count() / static_cast<double>(iterations));
    }
    return seconds;
  }

  // The time of each operation: a rank starts one when its last has ended, as training does, and
  // `pause_s` later. Rank 0 decides how many there are from the time that the last batch took.
  std::vector<double> timed_singly(const Operation& operation, const Call& call) {
    constexpr double kBatchSeconds = 1;
    std::vector<double> seconds;
    const auto begin = Clock::now();
    for (double each = *options_.seconds, rest = each; rest > 0; rest = left(begin)) {
      const double batch = std::max(std::min(rest, kBatchSeconds) / each, 1.0);
      const auto batch_begin = Clock::now();
      for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
        const auto start = Clock::now();
        launch(operation, call, 1);
        job_.wait();
        seconds.push_back(Seconds(Clock::now() - start).count());
        starts_.push_back(Seconds(start.time_since_epoch()).count());
        std::this_thread::sleep_for(Seconds(*options_.pause_s));
      }
      each = from_root(Seconds(Clock::now() - batch_begin).count() / batch);
    }
    return seconds;
  }

  static void print_list(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.9f", i ? ", " : "[", values[i]);
    std::printf(values.empty() ? "[]" : "]");
  }

  const Options& options_;
  Communicator job_;
  DeviceBuffer one_;
  DeviceBuffer other_;
  DeviceBuffer scratch_{1};
  std::vector<float> host_;
  uint64_t salt_ = 0;
  std::vector<double> starts_;  // of operations that are timed one by one, CLOCK_MONOTONIC
};

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  using namespace pacecar::nccl;
  if (argc == 3 && std::string_view(argv[2]) == "probe") return probe(argv[1]);
  const Options options = options_or_end(argc, argv);
  load_libraries(argv[1]);
  const size_t wrong = Rank(options).run();
  return wrong > 0 && options.seconds ? 1 : 0;
}
