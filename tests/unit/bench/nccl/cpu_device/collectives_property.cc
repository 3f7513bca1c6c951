// Whole collectives of some ranks, whose kernels take turns at random, against a computation of
// each element: any type, reduction, protocol, division into channels and chunks, ring, tree or
// PAT.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#include "bench/nccl/cpu_device/collectives/reduction.h"
#include "tests/support/device_world.h"
#include "tests/support/slow_floats.h"

namespace pacecar::collectives_property {
namespace {

using nccl::cpu::Algorithm;
using nccl::cpu::Function;
using nccl::cpu::Layout;
using nccl::cpu::Library;
using nccl::cpu::Operation;
using nccl::cpu::Protocol;
using nccl::cpu::Reduction;
using nccl::cpu::size_of;
using nccl::cpu::Type;
using test::CollectiveFields;
using test::DeviceLink;
using test::DeviceWorld;
using test::LaunchArguments;
using test::StepBytes;
using Bytes = std::vector<char>;

// Random, of the whole range from the first case on.
size_t any(size_t least, size_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, most + 1));
}
bool any() { return any(0, 1) != 0; }

struct Job {
  const Layout* layout;
  size_t ranks;
  Function function;
  StepBytes bytes;
  CollectiveFields work;  // of all ranks
  bool in_place;
  std::vector<Bytes> inputs;
  bool maximum = false;  // of kMinMax

  bool by_pat() const { return function.algorithm == Algorithm::kPat; }
  size_t element_bytes() const { return size_of(function.type); }
  size_t root() const { return static_cast<size_t>(work.root); }
  // Elements.
  size_t input_count() const {
    return work.total() * (function.operation == Operation::kReduceScatter ? ranks : 1);
  }
  size_t output_count() const {
    return work.total() * (function.operation == Operation::kAllGather ? ranks : 1);
  }
};

// --- random jobs ---

// Numbers with which all types compute exactly, however they are added up.
double any_number(const Job& job, std::mt19937_64& random) {
  const Type type = job.function.type;
  const bool has_sign = !test::is_integer(type) || test::is_signed(type);
  switch (job.function.reduction) {
    case Reduction::kProduct: return static_cast<double>(1 + random() % 2);
    case Reduction::kMinMax: return static_cast<double>(random() % 17) - (has_sign ? 8 : 0);
    default: break;
  }
  if (type >= Type::kFloat8E4M3) return static_cast<double>(random() % 2);
  return static_cast<double>(random() % 19) - (has_sign ? 9 : 0);
}

uint64_t operand_of(const Job& job) {
  const Type type = job.function.type;
  const uint64_t sign = uint64_t{1} << (8 * job.element_bytes() - 1);
  switch (job.function.reduction) {
    case Reduction::kPreMultipliedSum: return test::bits_of(type, 2);
    case Reduction::kSumPostDivided:
      return job.layout->signed_divisor ? job.ranks << 1 | (test::is_signed(type) ? 1 : 0)
                                        : job.ranks;
    case Reduction::kMinMax:
      if (!test::is_integer(type)) return job.maximum ? 1 : 0;
      return (test::is_signed(type) ? sign : 0) ^ (job.maximum ? ~uint64_t{0} : 0);
    default: return 0;
  }
}

bool reduces(Operation operation) {
  return operation != Operation::kAllGather && operation != Operation::kBroadcast;
}

void draw_function(Job& job, Operation operation, Algorithm algorithm) {
  job.layout = nccl::cpu::layout_of(*rc::gen::element(22203, 22809, 22907));
  job.function.operation = operation;
  job.function.algorithm = algorithm;
  job.ranks = any(2, job.by_pat() ? 8 : 5);  // sums of at most 8 are exact in 8 bits
  job.function.protocol = job.by_pat() ? Protocol::kSimple : static_cast<Protocol>(any(0, 2));
  job.in_place = any();
  job.work.root = static_cast<int>(any(0, job.ranks - 1));
  if (!reduces(operation)) return;  // bytes
  job.function.type = static_cast<Type>(any(0, 11));
  const bool divides = test::is_integer(job.function.type);
  job.function.reduction = static_cast<Reduction>(any(0, job.by_pat() ? 2 : divides ? 4 : 3));
  job.maximum = any();
}

// How much each channel has, and in which chunks.
void draw_parts(Job& job) {
  const Protocol protocol = job.function.protocol;
  const size_t grain = std::array<size_t, 3>{16, 1920, 512}[static_cast<size_t>(protocol)];
  const Operation operation = job.function.operation;
  const bool two_by_two = protocol == Protocol::kSimple &&
                          job.function.algorithm == Algorithm::kRing &&
                          operation != Operation::kBroadcast && operation != Operation::kReduce;
  const size_t most_grains = job.bytes.data(protocol) * (two_by_two ? 4 : 1) / grain;
  const size_t channels = any(1, 4);
  job.work.lowest = static_cast<uint32_t>(any(0, 2));
  job.work.highest = job.work.lowest + static_cast<uint32_t>(channels) - 1;
  for (size_t i = 0; i < 3; ++i) {
    job.work.grains[i] = any(1, most_grains);
    if (i >= channels || (i == 1 && channels == 2)) continue;
    const size_t chunk = job.work.grains[i] * (grain / job.element_bytes());
    job.work.counts[i] = any(any() ? 0 : 1, chunk * (any() ? 3 : job.ranks * 2));
    if (job.by_pat()) job.work.counts[i] = any(1, any() ? chunk * 2 : chunk / 4);
  }
  if (channels == 2) job.work.counts[2] = any(1, 1000);
}

void draw_inputs(Job& job) {
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  const size_t element = job.element_bytes();
  for (size_t rank = 0; rank < job.ranks; ++rank) {
    Bytes& input = job.inputs.emplace_back(job.input_count() * element);
    for (size_t i = 0; i < job.input_count(); ++i) {
      const uint64_t bits = reduces(job.function.operation)
                                ? test::bits_of(job.function.type, any_number(job, random))
                                : random() & 0xff;
      test::store_bits(input.data() + i * element, element, bits);
    }
  }
}

// --- expected results ---

double reduced(const Job& job, size_t element) {
  const auto of = [&](size_t rank) {
    const char* const at = job.inputs[rank].data() + element * job.element_bytes();
    return test::number_of(job.function.type, test::load_bits(at, job.element_bytes()));
  };
  double result = of(0);
  for (size_t rank = 1; rank < job.ranks; ++rank) {
    if (job.function.reduction == Reduction::kProduct) {
      result *= of(rank);
    } else if (job.function.reduction == Reduction::kMinMax) {
      result = job.maximum ? std::max(result, of(rank)) : std::min(result, of(rank));
    } else {
      result += of(rank);
    }
  }
  if (job.function.reduction == Reduction::kPreMultipliedSum) return 2 * result;
  if (job.function.reduction == Reduction::kSumPostDivided) {
    return std::trunc(result / static_cast<double>(job.ranks));
  }
  return result;
}

Bytes expected_output(const Job& job, size_t rank) {
  Bytes output(job.output_count() * job.element_bytes());
  const size_t share = job.inputs[0].size();
  if (job.function.operation == Operation::kAllGather) {
    for (size_t i = 0; i < job.ranks; ++i) {
      std::ranges::copy(job.inputs[i], output.begin() + static_cast<long>(i * share));
    }
    return output;
  }
  if (job.function.operation == Operation::kBroadcast) return job.inputs[job.root()];
  const bool scatters = job.function.operation == Operation::kReduceScatter;
  for (size_t i = 0; i < job.output_count(); ++i) {
    const double number = reduced(job, i + (scatters ? rank * job.output_count() : 0));
    test::store_bits(output.data() + i * job.element_bytes(), job.element_bytes(),
                     test::bits_of(job.function.type, number));
  }
  return output;
}

// --- runs ---

// A rank's buffers; in place, the smaller is a part of the larger.
class Buffers {
 public:
  Buffers(const Job& job, size_t rank)
      : input_(job.inputs[rank]), output_(job.output_count() * job.element_bytes(), 'x') {
    const size_t share = job.work.total() * job.element_bytes();
    send = input_.data();
    receive = output_.data();
    if (job.in_place && job.function.operation == Operation::kAllGather) {
      std::ranges::copy(input_, output_.begin() + static_cast<long>(rank * share));
      send = output_.data() + rank * share;
    } else if (job.in_place) {
      const bool scatters = job.function.operation == Operation::kReduceScatter;
      receive = input_.data() + (scatters ? rank * share : 0);
    }
    // What only the root has, others need not have.
    if (job.function.operation == Operation::kReduce && rank != job.root()) receive = nullptr;
    if (job.function.operation == Operation::kBroadcast && rank != job.root()) send = nullptr;
  }

  char* send;
  char* receive;

 private:
  Bytes input_;
  Bytes output_;
};

// Rings of any order; trees in which nobody has more than three below, and the root at most two.
void draw_ways(DeviceWorld& world, const Job& job, std::mt19937_64& random) {
  std::vector<int> order(job.ranks);
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t channel = job.work.lowest; channel <= job.work.highest; ++channel) {
    std::ranges::shuffle(order, random);
    world.set_ring(static_cast<int>(channel), order);
    std::ranges::shuffle(order, random);
    std::vector<int> parents(job.ranks, -1);
    std::vector<int> below(job.ranks);
    for (size_t i = 1; i < order.size(); ++i) {
      size_t parent = random() % i;
      while (below[parent] == (parent == 0 ? 2 : 3)) parent = random() % i;
      ++below[parent];
      parents[static_cast<size_t>(order[i])] = order[parent];
    }
    world.set_tree(static_cast<int>(channel), parents);
    for (int rank = 0; rank < world.ranks(); ++rank) {
      for (int far = 1; job.by_pat() && far < world.ranks(); far *= 2) {
        world.connect(static_cast<int>(channel), rank, (rank + far) % world.ranks(), 0);
        world.connect(static_cast<int>(channel), (rank + far) % world.ranks(), rank, 0);
      }
    }
  }
}

void check(Operation operation, Algorithm algorithm) {
  Job job{};
  draw_function(job, operation, algorithm);
  draw_parts(job);
  draw_inputs(job);
  job.work.operand = operand_of(job);
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  const auto fifo_of = [&](int) {
    return random() % 2 == 0 ? DeviceLink::Fifo::kNone : DeviceLink::Fifo::kInOrder;
  };
  const int channels = static_cast<int>(job.work.highest) + 1;
  DeviceWorld world(*job.layout, static_cast<int>(job.ranks), channels, job.bytes, fifo_of);
  draw_ways(world, job, random);
  Function played = job.function;
  if (job.layout->signed_divisor && test::is_integer(played.type)) {
    // Signed and unsigned share a kernel, whose first row is that of the signed type.
    played.type = static_cast<Type>(static_cast<int>(played.type) / 2 * 2);
  }
  const Library library{*job.layout, {Function{}, played}};
  // Twice, as steps are counted on.
  for (int round = 0; round < 2; ++round) {
    std::deque<Buffers> buffers;
    std::vector<LaunchArguments> arguments;
    const uint64_t mask = (uint64_t{2} << job.work.highest) - (uint64_t{1} << job.work.lowest);
    for (size_t rank = 0; rank < job.ranks; ++rank) {
      const Buffers& own = buffers.emplace_back(job, rank);
      CollectiveFields work = job.work;
      work.send = own.send;
      work.receive = own.receive;
      arguments.emplace_back(world.rank(rank).address(), mask)
          .add_layer(LaunchArguments::Kind::kCollective, 1, {work.bytes(*job.layout)});
    }
    RC_ASSERT(DeviceWorld::run(library, arguments, random()));
    for (size_t rank = 0; rank < job.ranks; ++rank) {
      if (buffers[rank].receive == nullptr) continue;
      const Bytes expected = expected_output(job, rank);
      const char* const output = buffers[rank].receive;
      RC_ASSERT(Bytes(output, output + expected.size()) == expected);
    }
  }
}

RC_GTEST_PROP(CollectivesProperty, AllReduceOverARing, ()) {
  check(Operation::kAllReduce, Algorithm::kRing);
}
RC_GTEST_PROP(CollectivesProperty, AllReduceOverATree, ()) {
  check(Operation::kAllReduce, Algorithm::kTree);
}
RC_GTEST_PROP(CollectivesProperty, AllGather, ()) {
  check(Operation::kAllGather, Algorithm::kRing);
}
RC_GTEST_PROP(CollectivesProperty, ReduceScatter, ()) {
  check(Operation::kReduceScatter, Algorithm::kRing);
}
RC_GTEST_PROP(CollectivesProperty, Broadcast, ()) {
  check(Operation::kBroadcast, Algorithm::kRing);
}
RC_GTEST_PROP(CollectivesProperty, AllGatherByPat, ()) {
  check(Operation::kAllGather, Algorithm::kPat);
}
RC_GTEST_PROP(CollectivesProperty, ReduceScatterByPat, ()) {
  check(Operation::kReduceScatter, Algorithm::kPat);
}
RC_GTEST_PROP(CollectivesProperty, Reduce, ()) { check(Operation::kReduce, Algorithm::kRing); }

}  // namespace
}  // namespace pacecar::collectives_property
