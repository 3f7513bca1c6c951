// One rank of a training job for study.py: it repeatedly loads data, computes, and takes part in
// collectives around a ring, over a net plugin whose profiler it calls as NCCL does. Sleeping
// replaces a GPU. Commands on stdin change the rank's behaviour:
//
//   late MS   it loads data for this much longer
//   gpu MS    its GPU's first data is this much later
//   copy MS   its GPU takes this long for each message
//   order     it calls the two collectives in the other order, once
//   well      as at first
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "net_plugin/host/buffer.h"
#include "tests/faults/request_stream.h"
#include "tests/support/profile_player.h"

namespace pacecar::nccl {
namespace {

using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr size_t kElements = 1 << 18;       // 1 MiB
constexpr size_t kSliceElements = 1 << 14;  // 64 KiB
constexpr size_t kSliceBytes = kSliceElements * sizeof(float);
constexpr size_t kWindow = 8;         // slices in flight
constexpr milliseconds kCompute{15};  // in an iteration
constexpr std::chrono::microseconds kRest{50};
constexpr size_t kBatchBytes = 256 << 10;  // the data loader's file

struct Options {
  std::string plugin;
  std::string disk;     // folder of the data loader; empty: none
  std::string meeting;  // folder of the job's ranks
  int ranks = 4;
  int rank = 0;
};

struct Behaviour {
  milliseconds late{0};
  milliseconds gpu{0};
  milliseconds copy{0};
  bool swapped = false;
};

// The structure of a collective: the number of rounds in which every rank passes its slices on.
struct Kind {
  const char* name;
  size_t rounds;
};

// A rank's direction of a collective: its slices, as NCCL's proxy thread sees them.
struct Direction {
  void* operation = nullptr;
  std::array<void*, kWindow> steps{};
  void*& step(size_t slice) { return steps[slice % steps.size()]; }
};

std::span<uint8_t> bytes_of(std::span<float> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

// Each rank leaves the handle of its listener in the folder.
std::filesystem::path handle_file(const Options& options, int rank) {
  return std::filesystem::path(options.meeting) / ("handle." + std::to_string(rank));
}

void leave_handle(const Options& options, const HandleBytes& handle) {
  const std::filesystem::path file = handle_file(options, options.rank);
  const std::filesystem::path part = file.string() + ".part";
  std::ofstream(part, std::ios::binary)
      .write(reinterpret_cast<const char*>(handle.data()), std::ssize(handle));
  std::filesystem::rename(part, file);
}

HandleBytes await_handle(const Options& options, int rank) {
  HandleBytes handle{};
  poll_until("the handle of the next rank", [&] {
    std::ifstream file(handle_file(options, rank), std::ios::binary);
    return bool(file.read(reinterpret_cast<char*>(handle.data()), std::ssize(handle)));
  });
  return handle;
}

void warnings_to_stderr(LogSeverity severity, const char* line) {
  const bool warns = severity == LogSeverity::kWarn || severity == LogSeverity::kAbort;
  if (warns) std::fprintf(stderr, "%s\n", line);  // one write: lines of several ranks stay whole
}

class Rank {
 public:
  explicit Rank(const Options& options)
      : options_(options),
        host_({.path = options.plugin}, warnings_to_stderr),
        profile_(ProfilePlayer::find(host_.module())),
        sent_(kElements),
        received_(kWindow * kSliceElements),
        ends_(connect()),
        send_memory_(host_, ends_.send, bytes_of(sent_)),
        receive_memory_(host_, ends_.receive, bytes_of(received_)) {}

  void iterate(Behaviour& behaviour) {
    load(behaviour);
    Kind first = all_reduce();
    Kind second = all_gather();
    if (std::exchange(behaviour.swapped, false)) std::swap(first, second);
    collective(first, behaviour);
    std::this_thread::sleep_for(kCompute);
    collective(second, behaviour);
  }

 private:
  Kind all_reduce() const { return {"AllReduce", 2 * (ranks() - 1)}; }
  Kind all_gather() const { return {"AllGather", ranks() - 1}; }
  size_t ranks() const { return static_cast<size_t>(options_.ranks); }

  // The neighbours in the ring.
  int next() const { return (options_.rank + 1) % options_.ranks; }
  int previous() const { return (options_.rank + options_.ranks - 1) % options_.ranks; }

  Ends connect() {
    if (profile_ == nullptr) throw HostError("the plugin has no profiler");
    expect_success(profile_->start({.communicator = 0x7a17,
                                    .nodes = options_.ranks,
                                    .ranks = options_.ranks,
                                    .rank = options_.rank}),
                   "the profiler's init");
    host_.start();
    const Listening listening = host_.listen();
    leave_handle(options_, listening.handle);
    HandleBytes handle = await_handle(options_, next());
    Ends ends;
    poll_until("connections", [&] { return host_.try_both(handle, listening.comm, &ends); });
    host_.close_listen(listening.comm);
    return ends;
  }

  // Loads the next batch, through a file if there is a disk; tries again while the disk is full.
  void load(const Behaviour& behaviour) const {
    std::this_thread::sleep_for(behaviour.late);
    if (options_.disk.empty()) return;
    const std::filesystem::path batch = std::filesystem::path(options_.disk) / "batch";
    for (int attempt = 0; attempt < 4; ++attempt) {
      std::ofstream file(batch, std::ios::binary | std::ios::trunc);
      file << std::string(kBatchBytes, 'x');
      if (file.flush()) return;
      std::this_thread::sleep_for(kCompute);
    }
  }

  void collective(const Kind& kind, const Behaviour& behaviour) {
    per_round_ = std::max<size_t>(1, kElements / ranks() / kSliceElements);
    total_ = kind.rounds * per_round_;
    sends_.reset();
    receives_.reset();
    consumed_ = 0;
    uint64_t& number = kind.rounds > ranks() ? reduces_ : gathers_;
    void* const whole = profile_->start_collective(kind.name, kElements, number++);
    sending_.operation = profile_->start_operation(whole, next(), true, static_cast<int>(total_));
    receiving_.operation =
        profile_->start_operation(whole, previous(), false, static_cast<int>(total_));
    profile_->stop(whole);
    data_ready_ = std::chrono::steady_clock::now() + behaviour.gpu;
    started_ = 0;
    while (sends_.done() < total_ || consumed_ < total_) {
      if (!step(behaviour)) std::this_thread::sleep_for(kRest);
    }
    profile_->stop(sending_.operation);
    profile_->stop(receiving_.operation);
  }

  bool step(const Behaviour& behaviour) {
    bool progress = post_receive();
    progress |= post_send();
    progress |= take(behaviour);
    const size_t done = sends_.done();
    if (!sends_.take(host_)) return progress;
    profile_->stop(std::exchange(sending_.step(done), nullptr));
    return true;
  }

  bool post_receive() {
    const size_t slice = receives_.posted();
    // The slice that had this buffer before must have been consumed.
    if (slice == total_ || receives_.full() || slice >= consumed_ + kWindow) return false;
    void*& step = receiving_.step(slice);
    if (step == nullptr) {
      step = profile_->start_step(receiving_.operation, static_cast<int>(slice));
    }
    Part part{
        bytes_of(std::span(received_).subspan((slice % kWindow) * kSliceElements, kSliceElements)),
        0, receive_memory_.memory()};
    if (!receives_.post(host_.try_receive(ends_.receive, part))) return false;
    profile_->change(step, ProfileState::kReceiveWait);
    return true;
  }

  bool post_send() {
    const size_t slice = sends_.posted();
    if (slice == total_ || sends_.full()) return false;
    void*& step = sending_.step(slice);
    if (started_ == slice) {
      step = profile_->start_step(sending_.operation, static_cast<int>(slice));
      profile_->change(step, ProfileState::kSendGpuWait);
      ++started_;
    }
    const bool came = slice < per_round_ || consumed_ > slice - per_round_;
    if (!came || std::chrono::steady_clock::now() < data_ready_) return false;
    profile_->change(step, ProfileState::kSendPeerWait);
    const size_t place = (slice * kSliceElements) % (kElements - kSliceElements + 1);
    Part part{bytes_of(std::span(sent_).subspan(place, kSliceElements)), 0, send_memory_.memory()};
    if (!sends_.post(host_.try_send(ends_.send, part))) return false;
    profile_->change(step, ProfileState::kSendWait, part.data.size());
    return true;
  }

  // The GPU consumes the received messages, one after the other.
  bool take(const Behaviour& behaviour) {
    const auto now = std::chrono::steady_clock::now();
    bool progress = false;
    const size_t slice = receives_.done();
    if (const std::optional<size_t> bytes = receives_.take(host_)) {
      if (*bytes != kSliceBytes) throw HostError("a message has another size than the slice");
      void* const step = receiving_.step(slice);
      profile_->change(step, ProfileState::kReceiveFlushWait, kSliceBytes);
      profile_->change(step, ProfileState::kReceiveGpuWait, kSliceBytes);
      if (consumed_ == slice) taken_at_ = now + behaviour.copy;
      progress = true;
    }
    if (consumed_ < receives_.done() && now >= taken_at_) {
      profile_->stop(std::exchange(receiving_.step(consumed_), nullptr));
      ++consumed_;
      taken_at_ = now + behaviour.copy;
      progress = true;
    }
    return progress;
  }

  const Options& options_;
  Host host_;
  const std::unique_ptr<ProfilePlayer> profile_;
  std::vector<float> sent_;
  std::vector<float> received_;
  const Ends ends_;
  Registration send_memory_;
  Registration receive_memory_;
  RequestStream sends_{kWindow};
  RequestStream receives_{kWindow};
  uint64_t reduces_ = 0;
  uint64_t gathers_ = 0;
  // State of the running collective.
  Direction sending_;
  Direction receiving_;
  size_t total_ = 0;      // slices each way
  size_t per_round_ = 0;  // a slice is sent once the one this many slices before it is consumed
  size_t started_ = 0;    // sends that have a step
  size_t consumed_ = 0;   // receives
  SteadyTime data_ready_;
  SteadyTime taken_at_;
};

// Reads commands from stdin; false at its end.
bool listen(Behaviour& behaviour) {
  for (pollfd input{STDIN_FILENO, POLLIN, 0}; poll(&input, 1, 0) > 0;) {
    std::array<char, 256> text{};
    const ssize_t size = read(STDIN_FILENO, text.data(), text.size() - 1);
    if (size <= 0) return false;
    std::istringstream words(text.data());
    std::string word;
    int ms = 0;
    words >> word >> ms;
    if (word == "late") behaviour.late = milliseconds(ms);
    if (word == "gpu") behaviour.gpu = milliseconds(ms);
    if (word == "copy") behaviour.copy = milliseconds(ms);
    if (word == "order") behaviour.swapped = true;
    if (word == "well") behaviour = {};
  }
  return true;
}

void run(const Options& options) {
  constexpr int kWarmUp = 5;
  Rank rank(options);
  Behaviour behaviour;
  for (int iteration = 0; listen(behaviour); ++iteration) {
    rank.iterate(behaviour);
    if (iteration == kWarmUp) {
      fmt::print("ready\n");
      std::fflush(stdout);
    }
  }
  _exit(0);  // without closing connections: the study ends all ranks at once
}

}  // namespace
}  // namespace pacecar::nccl

int main(int argc, char** argv) {
  pacecar::nccl::Options options;
  CLI::App app("One rank of a job with faults, for study.py.");
  app.add_option("--plugin", options.plugin, "libnccl-net-pacecar.so")->required();
  app.add_option("--rank", options.rank, "which one this is")->required();
  app.add_option("--ranks", options.ranks, "of the job")->check(CLI::Range(2, 64));
  app.add_option("--meeting", options.meeting, "folder of the job's ranks")->required();
  app.add_option("--disk", options.disk, "folder of the data loader");
  CLI11_PARSE(app, argc, argv);
  try {
    pacecar::nccl::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", options.rank, error.what());
    return 1;
  }
}
