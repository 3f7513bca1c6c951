// One rank of a job that draws collectives by a seed, and checks every element of their results:
//   checked_rank NCCL RANK RANKS GPU ID_FILE SEED STEPS BYTES [BUFFERS] [graphs]
// Operation, type, reduction, size (up to BYTES), place and grouping are drawn, the same in all
// ranks. With `graphs` most steps are captured into a CUDA graph that is launched twice. Prints a
// line of JSON: how many collectives were checked, and how many had wrong elements.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/nccl/gpu/device.h"
#include "tests/nccl/buffer.h"
#include "tests/nccl/elements.h"
#include "tests/nccl/more_calls.h"

namespace pacecar::nccl_test {
namespace {

using nccl::Communicator;
using nccl::driver;
using nccl::require_driver;
using nccl::require_nccl;

enum class Kind {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kSendReceive,
  kAllToAll,
  kGather,
  kScatter
};
constexpr int kKinds = 9;
constexpr std::array<const char*, kKinds> kNames{"all-reduce", "reduce",    "reduce-scatter",
                                                 "all-gather", "broadcast", "send-receive",
                                                 "all-to-all", "gather",    "scatter"};

struct Call {
  Kind kind;
  const ElementType* type;
  Operation operation;
  size_t count;
  int root;
  bool in_place;
  uint64_t salt;
  size_t shift;  // of the buffers, in elements, from an aligned address
};

bool reduces(Kind kind) { return kind <= Kind::kReduceScatter; }

// What a rank has and gets, in elements.
size_t sent_elements(const Call& call, int rank, int ranks) {
  const auto all = call.count * static_cast<size_t>(ranks);
  switch (call.kind) {
    case Kind::kReduceScatter:
    case Kind::kAllToAll: return all;
    case Kind::kScatter: return rank == call.root ? all : 0;
    case Kind::kBroadcast: return rank == call.root ? call.count : 0;
    default: return call.count;
  }
}

size_t received_elements(const Call& call, int rank, int ranks) {
  const auto all = call.count * static_cast<size_t>(ranks);
  switch (call.kind) {
    case Kind::kAllGather:
    case Kind::kAllToAll: return all;
    case Kind::kGather: return rank == call.root ? all : 0;
    case Kind::kReduce: return rank == call.root ? call.count : 0;
    default: return call.count;
  }
}

double expected(const Call& call, int rank, int ranks, size_t index) {
  const auto of = [&](size_t sender, size_t place) {
    return static_cast<double>(
        input(*call.type, call.operation, call.salt, static_cast<int>(sender), ranks, place));
  };
  const auto own = static_cast<size_t>(rank) * call.count;
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce: return combined(*call.type, call.operation, call.salt, ranks, index);
    case Kind::kReduceScatter:
      return combined(*call.type, call.operation, call.salt, ranks, own + index);
    case Kind::kAllGather:
    case Kind::kGather: return of(index / call.count, index % call.count);
    case Kind::kBroadcast: return of(static_cast<size_t>(call.root), index);
    case Kind::kSendReceive: return of(static_cast<size_t>((rank + ranks - 1) % ranks), index);
    case Kind::kAllToAll: return of(index / call.count, own + index % call.count);
    case Kind::kScatter: return of(static_cast<size_t>(call.root), own + index);
  }
  return 0;
}

class Draw {
 public:
  Draw(uint64_t seed, int ranks, size_t most_bytes, size_t types)
      : engine_(seed), ranks_(ranks), most_bytes_(most_bytes), types_(types) {}

  std::vector<Call> step() {
    std::vector<Call> calls(1 + (below(4) == 0 ? below(3) : 0));
    // From NCCL 2.29 on, broadcasts of different roots are one kernel.
    const bool broadcasts = calls.size() > 1 && below(2) == 0;
    for (Call& call : calls) {
      call = one(calls.size(), broadcasts ? Kind::kBroadcast : static_cast<Kind>(below(kKinds)));
    }
    return calls;
  }

 private:
  Call one(size_t together, Kind kind) {
    Call call{.kind = kind,
              .type = &element_types()[below(types_)],
              .operation = static_cast<Operation>(below(kOperations)),
              .count = 0,
              .root = static_cast<int>(below(static_cast<size_t>(ranks_))),
              .in_place = below(3) == 0,
              .salt = engine_(),
              .shift = below(2) == 0 ? 0 : below(16)};
    if (!reduces(call.kind)) call.operation = Operation::kMaximum;
    if (!is_exact(*call.type, call.operation, ranks_)) call.operation = Operation::kSum;
    // All magnitudes that matter: no elements, a few, some pages, and up to the whole buffer.
    const size_t most = most_bytes_ / together / call.type->bytes / static_cast<size_t>(ranks_);
    constexpr std::array<size_t, 5> kBounds{4, 100, 4096, 1 << 16, size_t{1} << 40};
    call.count = below(std::min(most, kBounds[below(kBounds.size())]) + 1);
    return call;
  }
  size_t below(size_t bound) { return engine_() % bound; }

  std::mt19937_64 engine_;
  int ranks_;
  size_t most_bytes_;
  size_t types_;
};

class Rank {
 public:
  Rank(int rank, int ranks, int gpu, const std::string& id_file, size_t bytes, BufferKind kind)
      : job_(rank, ranks, gpu, id_file),
        one_(job_.handle(), kind, bytes + kRoom),
        other_(job_.handle(), kind, bytes + kRoom) {}

  int rank() const { return job_.rank(); }

  // Runs the calls as one group, and returns how many had wrong elements.
  size_t run(const std::vector<Call>& calls) {
    const std::vector<Places> places = prepare(calls);
    enqueue(calls, places);
    return wrong_of(calls, places);
  }

  // The same from a graph of the calls, launched `times`.
  size_t run_graph(const std::vector<Call>& calls, size_t times) {
    constexpr int kThreadLocal = 1;
    require_driver(more().begin_capture(job_.stream(), kThreadLocal), "cuStreamBeginCapture");
    enqueue(calls, places_of(calls));
    Graph graph = nullptr;
    require_driver(more().end_capture(job_.stream(), &graph), "cuStreamEndCapture");
    ExecutableGraph executable = nullptr;
    require_driver(more().instantiate(&executable, graph, 0), "cuGraphInstantiate");
    require_driver(more().destroy_graph(graph), "cuGraphDestroy");
    size_t wrong = 0;
    for (size_t i = 0; i < times; ++i) {
      const std::vector<Places> places = prepare(calls);
      require_driver(more().launch(executable, job_.stream()), "cuGraphLaunch");
      wrong += wrong_of(calls, places);
    }
    require_driver(more().destroy_executable(executable), "cuGraphExecDestroy");
    return wrong;
  }

  void leave() {
    job_.barrier(scratch_);
    one_.release();
    other_.release();
  }

 private:
  static constexpr size_t kGuard = 64;  // bytes around a result that must not change
  struct Places {
    char* send;
    char* receive;
  };

  // For three grouped calls, each with its guards and rounding.
  static constexpr size_t kRoom = 16384;

  std::vector<Places> places_of(const std::vector<Call>& calls) const {
    std::vector<Places> places;
    size_t offset = kGuard;
    for (const Call& call : calls) {
      places.push_back(place(call, offset));
      const size_t most = call.count * static_cast<size_t>(job_.ranks()) + call.shift;
      offset += (most * call.type->bytes + 2 * kGuard + 255) / 256 * 256;
    }
    return places;
  }

  std::vector<Places> prepare(const std::vector<Call>& calls) {
    other_.poison();
    std::vector<Places> places = places_of(calls);
    for (size_t i = 0; i < calls.size(); ++i) fill(calls[i], places[i]);
    return places;
  }

  void enqueue(const std::vector<Call>& calls, const std::vector<Places>& places) {
    if (calls.size() > 1) require_nccl(nccl::nccl().group_start(), "ncclGroupStart");
    std::vector<int> made;
    for (size_t i = 0; i < calls.size(); ++i) launch(calls[i], places[i], made);
    if (calls.size() > 1) require_nccl(nccl::nccl().group_end(), "ncclGroupEnd");
    for (const int operation : made) {
      require_nccl(more().destroy_operation(operation, job_.handle()), "ncclRedOpDestroy");
    }
  }

  size_t wrong_of(const std::vector<Call>& calls, const std::vector<Places>& places) {
    job_.wait();
    size_t wrong = 0;
    for (size_t i = 0; i < calls.size(); ++i) wrong += is_right(calls[i], places[i]) ? 0 : 1;
    return wrong;
  }

  Places place(const Call& call, size_t offset) const {
    const size_t begin = offset + call.shift * call.type->bytes;
    const size_t own = static_cast<size_t>(job_.rank()) * call.count * call.type->bytes;
    char* const first = one_.data() + begin;
    char* const second = other_.data() + begin;
    if (!call.in_place) return {first, second};
    switch (call.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
      case Kind::kBroadcast: return {second, second};
      case Kind::kReduceScatter: return {second, second + own};
      case Kind::kAllGather: return {second + own, second};
      default: return {first, second};
    }
  }

  void fill(const Call& call, const Places& places) {
    const size_t elements = sent_elements(call, job_.rank(), job_.ranks());
    const size_t bytes = elements * call.type->bytes;
    host_.resize(std::max(host_.size(), bytes));
    for (size_t i = 0; i < elements; ++i) {
      const int64_t value =
          input(*call.type, call.operation, call.salt, job_.rank(), job_.ranks(), i);
      write_element(*call.type, static_cast<double>(value), host_.data() + i * call.type->bytes);
    }
    if (bytes == 0) return;
    require_driver(driver().copy_to_device(reinterpret_cast<nccl::DevicePointer>(places.send),
                                           host_.data(), bytes),
                   "cuMemcpy to the GPU");
  }

  int operation_of(const Call& call, std::vector<int>& made) {
    if (call.operation != Operation::kScaledSum) return static_cast<int>(call.operation);
    std::array<char, 8> scalar{};
    write_element(*call.type, static_cast<double>(kScale), scalar.data());
    int operation = 0;
    constexpr int kHostImmediate = 1;
    require_nccl(more().create_scaled_sum(&operation, scalar.data(), call.type->number,
                                          kHostImmediate, job_.handle()),
                 "ncclRedOpCreatePreMulSum");
    made.push_back(operation);
    return operation;
  }

  void launch(const Call& call, const Places& at, std::vector<int>& made) {
    const auto& nccl = nccl::nccl();
    const int type = call.type->number;
    const auto handle = job_.handle();
    const auto stream = job_.stream();
    const auto require = [&](int result) { require_nccl(result, name(call)); };
    switch (call.kind) {
      case Kind::kAllReduce:
        return require(nccl.all_reduce(at.send, at.receive, call.count, type,
                                       operation_of(call, made), handle, stream));
      case Kind::kReduce:
        return require(nccl.reduce(at.send, at.receive, call.count, type, operation_of(call, made),
                                   call.root, handle, stream));
      case Kind::kReduceScatter:
        return require(nccl.reduce_scatter(at.send, at.receive, call.count, type,
                                           operation_of(call, made), handle, stream));
      case Kind::kAllGather:
        return require(nccl.all_gather(at.send, at.receive, call.count, type, handle, stream));
      case Kind::kBroadcast:
        return require(
            nccl.broadcast(at.send, at.receive, call.count, type, call.root, handle, stream));
      case Kind::kSendReceive:
      case Kind::kAllToAll:
      case Kind::kGather:
      case Kind::kScatter: return exchange(call, at);
    }
  }

  void exchange(const Call& call, const Places& at) {
    const auto& nccl = nccl::nccl();
    const size_t bytes = call.count * call.type->bytes;
    const auto send = [&](int peer, size_t place) {
      require_nccl(nccl.send(at.send + place * bytes, call.count, call.type->number, peer,
                             job_.handle(), job_.stream()),
                   "ncclSend");
    };
    const auto receive = [&](int peer, size_t place) {
      require_nccl(nccl.receive(at.receive + place * bytes, call.count, call.type->number, peer,
                                job_.handle(), job_.stream()),
                   "ncclRecv");
    };
    const int ranks = job_.ranks();
    const bool is_root = job_.rank() == call.root;
    require_nccl(nccl.group_start(), "ncclGroupStart");
    if (call.kind == Kind::kSendReceive) {
      send((job_.rank() + 1) % ranks, 0);
      receive((job_.rank() + ranks - 1) % ranks, 0);
    }
    for (int peer = 0; peer < ranks; ++peer) {
      const auto place = static_cast<size_t>(peer);
      const bool to_all = call.kind == Kind::kAllToAll;
      if (to_all || (call.kind == Kind::kScatter && is_root)) send(peer, place);
      if (to_all || (call.kind == Kind::kGather && is_root)) receive(peer, place);
    }
    if (call.kind == Kind::kGather) send(call.root, 0);
    if (call.kind == Kind::kScatter) receive(call.root, 0);
    require_nccl(nccl.group_end(), "ncclGroupEnd");
  }

  bool is_right(const Call& call, const Places& at) {
    const size_t elements = received_elements(call, job_.rank(), job_.ranks());
    const size_t bytes = elements * call.type->bytes;
    const size_t guard = at.send == at.receive || call.in_place ? 0 : kGuard;
    const size_t whole = bytes + 2 * guard;
    host_.resize(std::max(host_.size(), whole));
    if (whole > 0) {
      require_driver(
          driver().copy_to_host(host_.data(),
                                reinterpret_cast<nccl::DevicePointer>(at.receive - guard), whole),
          "cuMemcpy from the GPU");
    }
    std::array<char, 8> wanted{};
    for (size_t i = 0; i < elements; ++i) {
      const double value = expected(call, job_.rank(), job_.ranks(), i);
      write_element(*call.type, value, wanted.data());
      const char* const got = host_.data() + guard + i * call.type->bytes;
      if (std::memcmp(got, wanted.data(), call.type->bytes) == 0) continue;
      return complain(call, "element " + std::to_string(i) + " is not " + std::to_string(value));
    }
    const auto poisoned = [](char byte) { return byte == '\xff'; };
    if (!std::all_of(host_.data(), host_.data() + guard, poisoned) ||
        !std::all_of(host_.data() + guard + bytes, host_.data() + whole, poisoned)) {
      return complain(call, "bytes beside the result changed");
    }
    return true;
  }

  bool complain(const Call& call, const std::string& what) const {
    std::fprintf(stderr, "rank %d, %s of %zu %s, operation %d%s, root %d: %s\n", job_.rank(),
                 name(call), call.count, call.type->name, static_cast<int>(call.operation),
                 call.in_place ? ", in place" : "", call.root, what.c_str());
    return false;
  }
  static const char* name(const Call& call) { return kNames[static_cast<size_t>(call.kind)]; }

  Communicator job_;
  Buffer one_;
  Buffer other_;
  nccl::DeviceBuffer scratch_{1};
  std::vector<char> host_;
};

int run(char** arguments, const std::string& buffers, bool graphs) {
  load_all(arguments[1]);
  const int ranks = std::stoi(arguments[3]);
  const size_t bytes = std::stoul(arguments[8]);
  int version = 0;
  nccl::nccl().version(&version);
  constexpr int kWithSmallFloats = 22400;
  const size_t types = element_types().size() - (version < kWithSmallFloats ? 2 : 0);
  Rank rank(std::stoi(arguments[2]), ranks, std::stoi(arguments[4]), arguments[5], bytes,
            buffer_kind(buffers));
  Draw draw(std::stoul(arguments[6]), ranks, bytes, types);
  const size_t steps = std::stoul(arguments[7]);
  size_t checked = 0;
  size_t wrong = 0;
  for (size_t step = 0; step < steps; ++step) {
    const std::vector<Call> calls = draw.step();
    constexpr size_t kEveryOtherMode = 4;
    const size_t launches = graphs && step % kEveryOtherMode != 0 ? 2 : 1;
    wrong += launches > 1 ? rank.run_graph(calls, launches) : rank.run(calls);
    checked += launches * calls.size();
  }
  rank.leave();
  std::printf("{\"nccl\": %d, \"checked\": %zu, \"wrong\": %zu}\n", version, checked, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pacecar::nccl_test

int main(int argc, char** argv) {
  constexpr int kArguments = 9;
  if (argc < kArguments) {
    std::fprintf(stderr,
                 "usage: checked_rank NCCL RANK RANKS GPU ID_FILE SEED STEPS BYTES [BUFFERS] "
                 "[graphs]\n");
    return 2;
  }
  std::vector<std::string> further(argv + kArguments, argv + argc);
  const bool graphs = std::erase(further, "graphs") > 0;
  return pacecar::nccl_test::run(argv, further.empty() ? "" : further.front(), graphs);
}
