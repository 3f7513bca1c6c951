// One rank of a job that makes, uses and ends communicators in the ways that programs do:
//   lives_rank NCCL RANK RANKS GPU FOLDER SCENARIO [NUMBER]
// Ranks meet by files in FOLDER. Prints a line of JSON at the end; any failure ends the program
// with a sentence and 1.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/nccl/gpu/device.h"
#include "tests/nccl/more_calls.h"

namespace pacecar::nccl_test {
namespace {

using nccl::DeviceBuffer;
using nccl::driver;
using nccl::end_with;
using nccl::kFloat;
using nccl::kSum;
using nccl::require_driver;
using nccl::require_nccl;
using Clock = std::chrono::steady_clock;

struct Job {
  int rank;
  int ranks;
  int gpu;
  std::string folder;
  int number;

  std::string file(const std::string& name) const { return folder + "/" + name; }
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Ranks that reach a point of that name wait for one another there. Not by NCCL.
void meet(const Job& job, const std::string& point) {
  std::ofstream(job.file(point + "." + std::to_string(job.rank))).close();
  for (int rank = 0; rank < job.ranks; ++rank) {
    while (access(job.file(point + "." + std::to_string(rank)).c_str(), F_OK) != 0) usleep(2000);
  }
}

constexpr size_t kElements = 50000;

// A communicator that may work in the background, and a stream that waits for no other.
class Communicator {
 public:
  nccl::NcclCommunicator handle = nullptr;
  nccl::Stream stream = nullptr;
  int ranks = 0;

  // Requires that a call succeeds, at once or in the background.
  void require(int begun, const char* what) const {
    int state = begun;
    while (state == kInProgress) {
      usleep(200);
      require_nccl(nccl::nccl().async_error(handle, &state), "ncclCommGetAsyncError");
    }
    require_nccl(state, what);
  }

  // Until the stream is idle; the error of NCCL that ended the waiting, or 0.
  int wait() const {
    for (;;) {
      const int state = driver().stream_query(stream);
      if (state == nccl::kSuccess) return 0;
      if (state != nccl::kNotReady) require_driver(state, "the stream");
      int failure = 0;
      require_nccl(nccl::nccl().async_error(handle, &failure), "ncclCommGetAsyncError");
      if (failure != 0 && failure != kInProgress) return failure;
      usleep(50);
    }
  }

  int start_sum(const float* from, float* to, size_t elements) const {
    return nccl::nccl().all_reduce(from, to, elements, kFloat, kSum, handle, stream);
  }

  void destroy() {
    require_nccl(nccl::nccl().destroy(handle), "ncclCommDestroy");
    driver().stream_destroy(stream);
  }
};

// An all-reduce of ones, again and again. Its memory is there before other threads use the GPU, and
// after: to free memory a GPU ends all that it does.
class Sum {
 public:
  void check(const Communicator& one) {
    std::vector<float> host(kElements, 1.0F);
    nccl::to_device(from_.data(), host, kElements);
    to_.poison();
    one.require(one.start_sum(from_.data(), to_.data(), kElements), "ncclAllReduce");
    require_nccl(one.wait(), "the all-reduce");
    nccl::to_host(host, to_.data(), kElements);
    for (const float value : host) {
      if (value != static_cast<float>(one.ranks)) end_with("a sum is " + std::to_string(value));
    }
  }

 private:
  DeviceBuffer from_{kElements};
  DeviceBuffer to_{kElements};
};

void use_gpu(int gpu) {
  nccl::Device device = 0;
  nccl::Context context = nullptr;
  require_driver(driver().device_get(&device, gpu), "cuDeviceGet");
  require_driver(driver().retain_context(&context, device), "cuDevicePrimaryCtxRetain");
  require_driver(driver().set_context(context), "cuCtxSetCurrent");
}

UniqueId shared_id(const Job& job, const std::string& name) {
  UniqueId id{};
  const std::string file = job.file(name);
  if (job.rank == 0) {
    require_nccl(nccl::nccl().unique_id(&id), "ncclGetUniqueId");
    std::ofstream(file + ".part", std::ios::binary).write(id.internal, sizeof(id.internal));
    std::rename((file + ".part").c_str(), file.c_str());
    return id;
  }
  for (;;) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof(id.internal))) return id;
    usleep(2000);
  }
}

enum class Blocking { kNo, kYes };

Communicator begin(const Job& job, const std::string& id_name, Blocking blocking, int ranks) {
  use_gpu(job.gpu);
  Communicator one{.ranks = ranks};
  Config config;
  config.blocking = blocking == Blocking::kYes ? 1 : 0;
  const UniqueId id = shared_id(job, id_name);
  const int begun = more().init_with(&one.handle, ranks, id, job.rank, &config);
  if (begun != kInProgress) require_nccl(begun, "ncclCommInitRankConfig");
  constexpr unsigned kNonBlockingStream = 1;
  require_driver(driver().stream_create(&one.stream, kNonBlockingStream), "cuStreamCreate");
  return one;
}

// A communicator of all ranks that is ready.
Communicator communicator(const Job& job, const std::string& id_name) {
  return begin(job, id_name, Blocking::kYes, job.ranks);
}

// --- what a process holds ---

size_t entries(const char* folder) {
  size_t count = 0;
  DIR* const listed = opendir(folder);
  while (listed != nullptr && readdir(listed) != nullptr) ++count;
  closedir(listed);
  return count;
}

size_t resident_bytes() {
  size_t all = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Threads that end are gone a moment later.
size_t settled(const char* folder, size_t wanted) {
  size_t seen = entries(folder);
  for (int tries = 0; seen > wanted && tries < 500; ++tries) {
    usleep(10'000);
    seen = entries(folder);
  }
  return seen;
}

// --- scenarios ---

// Communicators one after the other: what the process holds does not grow.
void cycles(const Job& job) {
  constexpr int kWarmUp = 5;
  use_gpu(job.gpu);
  Sum sum;
  size_t descriptors = 0;
  size_t threads = 0;
  size_t bytes = 0;
  for (int cycle = 0; cycle < job.number; ++cycle) {
    Communicator one = communicator(job, "id." + std::to_string(cycle));
    sum.check(one);
    meet(job, "used." + std::to_string(cycle));
    one.destroy();
    if (cycle != kWarmUp) continue;
    usleep(500'000);
    descriptors = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    bytes = resident_bytes();
  }
  const size_t descriptors_now = settled("/proc/self/fd", descriptors);
  const size_t threads_now = settled("/proc/self/task", threads);
  const auto grown = static_cast<long>(resident_bytes()) - static_cast<long>(bytes);
  std::printf(
      "{\"cycles\": %d, \"descriptors\": [%zu, %zu], \"threads\": [%zu, %zu], "
      "\"grown_bytes_per_cycle\": %ld}\n",
      job.number, descriptors, descriptors_now, threads, threads_now,
      grown / (job.number - kWarmUp));
  if (descriptors_now > descriptors) end_with("descriptors are left open");
  if (threads_now > threads) end_with("threads are left");
}

// Halves in reverse order; then all but the last rank.
void split(const Job& job) {
  Communicator all = communicator(job, "id");
  Sum sum;
  sum.check(all);
  constexpr int kNoColor = -1;
  for (const int color : {job.rank % 2, job.rank == job.ranks - 1 ? kNoColor : 0}) {
    Communicator part{.stream = all.stream};
    require_nccl(more().split(all.handle, color, job.ranks - job.rank, &part.handle, nullptr),
                 "ncclCommSplit");
    if (color == kNoColor) {
      if (part.handle != nullptr) end_with("a rank without a color got a communicator");
      continue;
    }
    require_nccl(more().count(part.handle, &part.ranks), "ncclCommCount");
    sum.check(part);
    require_nccl(nccl::nccl().destroy(part.handle), "ncclCommDestroy");
  }
  sum.check(all);
  meet(job, "end");
}

// Several communicators of the same ranks, each used by a thread of its own.
void threads(const Job& job) {
  use_gpu(job.gpu);
  std::vector<Sum> sums(static_cast<size_t>(job.number));
  std::vector<std::thread> all;
  for (int number = 0; number < job.number; ++number) {
    all.emplace_back([&, number] {
      const Communicator one = communicator(job, "id." + std::to_string(number));
      for (int round = 0; round < 20; ++round) sums[static_cast<size_t>(number)].check(one);
      meet(job, "end." + std::to_string(number));
    });
  }
  for (std::thread& one : all) one.join();
}

void without_blocking(const Job& job) {
  Communicator one = begin(job, "id", Blocking::kNo, job.ranks);
  one.require(kInProgress, "the start");
  Sum sum;
  sum.check(one);
  one.require(more().finalize(one.handle), "ncclCommFinalize");
  one.destroy();
}

// Collectives, sends and receives of buffers that the program registers.
void registered(const Job& job) {
  const Communicator all = communicator(job, "id");
  constexpr size_t kMany = 1 << 20;
  DeviceBuffer buffer(2 * kMany);
  float* const first = buffer.data();
  float* const second = first + kMany;
  void* registration = nullptr;
  require_nccl(more().register_buffer(all.handle, first, 2 * kMany * sizeof(float), &registration),
               "ncclCommRegister");
  const std::vector<float> ones(kMany, 1.0F);
  const auto& nccl = nccl::nccl();
  for (int round = 0; round < 5; ++round) {
    nccl::to_device(first, ones, kMany);
    require_nccl(all.start_sum(first, second, kMany), "ncclAllReduce");
    const int next = (job.rank + 1) % job.ranks;
    const int before = (job.rank + job.ranks - 1) % job.ranks;
    require_nccl(nccl.group_start(), "ncclGroupStart");
    require_nccl(nccl.send(second, kMany, kFloat, next, all.handle, all.stream), "ncclSend");
    require_nccl(nccl.receive(first, kMany, kFloat, before, all.handle, all.stream), "ncclRecv");
    require_nccl(nccl.group_end(), "ncclGroupEnd");
    require_nccl(all.wait(), "the exchange");
    std::vector<float> got(kMany);
    nccl::to_host(got, first, kMany);
    for (const float value : got) {
      if (value != static_cast<float>(job.ranks)) end_with("a sum is " + std::to_string(value));
    }
  }
  require_nccl(more().deregister_buffer(all.handle, registration), "ncclCommDeregister");
  meet(job, "end");
}

// Children of a process that has a communicator, as PyTorch's DataLoader starts them.
void forked(const Job& job) {
  const Communicator all = communicator(job, "id");
  Sum sum;
  for (int child = 0; child < 4; ++child) {
    sum.check(all);
    const pid_t made = fork();
    if (made == 0) {
      // Half of them leave as programs do, with all that runs then.
      if (child % 2 == 0) std::exit(0);
      _exit(0);
    }
    sum.check(all);
    int status = 0;
    waitpid(made, &status, 0);
    if (status != 0) end_with("a child ended with " + std::to_string(status));
  }
  sum.check(all);
  meet(job, "end");
}

// ncclCommAbort at a stage, NUMBER times in all stages in turn: before the others come, when all
// are there, while an operation waits for a rank that does not take part, while many operations
// run.
void aborted(const Job& job) {
  constexpr size_t kStages = 4;
  std::array<double, kStages> longest{};
  use_gpu(job.gpu);
  DeviceBuffer buffer(kElements);
  for (int attempt = 0; attempt < job.number; ++attempt) {
    const auto stage = static_cast<size_t>(attempt) % kStages;
    // Alone: one more rank than there are never comes.
    const Communicator one = begin(job, "id." + std::to_string(attempt), Blocking::kNo,
                                   stage == 0 ? job.ranks + 1 : job.ranks);
    if (stage > 0) one.require(kInProgress, "the start");
    const int operations = stage == 3 ? 20 : stage == 2 && job.rank != 0 ? 1 : 0;
    for (int i = 0; i < operations; ++i) {
      const int begun = one.start_sum(buffer.data(), buffer.data(), kElements);
      // NCCL may connect only now, which takes the rank that does not take part.
      if (stage == 3 || begun != kInProgress) one.require(begun, "ncclAllReduce");
    }
    if (stage != 1) usleep(static_cast<useconds_t>(attempt % 20 * 1000));
    const auto begun = Clock::now();
    require_nccl(more().abort(one.handle), "ncclCommAbort");
    longest[stage] = std::max(longest[stage], seconds_since(begun));
    driver().stream_destroy(one.stream);
    meet(job, "aborted." + std::to_string(attempt));
  }
  std::printf("{\"aborted\": %d, \"longest_seconds\": [%.3f, %.3f, %.3f, %.3f]}\n", job.number,
              longest[0], longest[1], longest[2], longest[3]);
}

// The last rank ends without a word while all-reduces run; how long until NCCL reports it.
void killed(const Job& job) {
  const Communicator all = begin(job, "id", Blocking::kNo, job.ranks);
  all.require(kInProgress, "the start");
  DeviceBuffer buffer(kElements);
  const auto run = [&] {
    all.require(all.start_sum(buffer.data(), buffer.data(), kElements), "ncclAllReduce");
    return all.wait();
  };
  for (int i = 0; i < 10; ++i) require_nccl(run(), "an all-reduce of all ranks");
  meet(job, "warm");
  if (job.rank == job.ranks - 1) {
    run();
    raise(SIGKILL);
  }
  const auto begun = Clock::now();
  int failure = 0;
  while (failure == 0) failure = run();
  const double noticed = seconds_since(begun);
  const auto aborting = Clock::now();
  require_nccl(more().abort(all.handle), "ncclCommAbort");
  std::printf("{\"noticed_seconds\": %.3f, \"error\": %d, \"abort_seconds\": %.3f}\n", noticed,
              failure, seconds_since(aborting));
}

// All-reduces until NUMBER seconds have passed: somebody disturbs the job meanwhile.
void disturbed(const Job& job) {
  const Communicator all = communicator(job, "id");
  Sum sum;
  sum.check(all);
  meet(job, "warm");
  const auto begun = Clock::now();
  DeviceBuffer word(1);
  std::vector<float> goes_on{1.0F};
  size_t done = 0;
  while (goes_on[0] != 0.0F) {
    sum.check(all);
    ++done;
    // The ranks' clocks differ: rank 0 decides.
    goes_on[0] = seconds_since(begun) < job.number ? 1.0F : 0.0F;
    nccl::to_device(word.data(), goes_on, 1);
    require_nccl(
        nccl::nccl().broadcast(word.data(), word.data(), 1, kFloat, 0, all.handle, all.stream),
        "ncclBroadcast");
    require_nccl(all.wait(), "the broadcast");
    nccl::to_host(goes_on, word.data(), 1);
  }
  std::printf("{\"done\": %zu}\n", done);
  meet(job, "end");
}

// The last rank comes to the first operation NUMBER seconds after the others.
void late(const Job& job) {
  const Communicator all = communicator(job, "id");
  Sum sum;
  if (job.rank == job.ranks - 1) std::this_thread::sleep_for(std::chrono::seconds(job.number));
  sum.check(all);
  meet(job, "end");
}

int run(int argc, char** argv) {
  const std::map<std::string, void (*)(const Job&)> scenarios{
      {"cycles", cycles},         {"split", split},
      {"threads", threads},       {"without_blocking", without_blocking},
      {"registered", registered}, {"forked", forked},
      {"aborted", aborted},       {"killed", killed},
      {"disturbed", disturbed},   {"late", late}};
  const auto scenario = scenarios.find(argv[6]);
  if (scenario == scenarios.end()) end_with(std::string("there is no scenario ") + argv[6]);
  load_all(argv[1]);
  scenario->second({std::stoi(argv[2]), std::stoi(argv[3]), std::stoi(argv[4]), argv[5],
                    argc > 7 ? std::stoi(argv[7]) : 0});
  return 0;
}

}  // namespace
}  // namespace pacecar::nccl_test

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: lives_rank NCCL RANK RANKS GPU FOLDER SCENARIO [NUMBER]\n");
    return 2;
  }
  return pacecar::nccl_test::run(argc, argv);
}
