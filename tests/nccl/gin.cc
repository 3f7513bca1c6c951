#include "tests/nccl/gin.h"

#include <sched.h>

#include <atomic>

#include "bench/nccl/gpu/device.h"

namespace pacecar::nccl_test {
namespace {

using nccl::driver;
using nccl::require_driver;
using nccl::require_nccl;

enum Operation : uint64_t {
  kPut = 1,
  kInline = 2,
  kCounter = 4,
  kIncrement = 8,
  kAdd = 16,
  kIntoWindow = 32,
};

// The words of a descriptor; the lowest bit of each says that it is there.
enum Word : size_t { kHeader, kFrom, kFromWindow, kTo, kToWindow, kCompletion, kSignalValue };

uint64_t present(uint64_t value) { return value << 1 | 1; }

template <typename T>
T from_gpu(uint64_t address) {
  T value{};
  require_driver(driver().copy_to_host(&value, address, sizeof(value)), "cuMemcpy from the GPU");
  return value;
}

template <typename Descriptor>
void set_completion(Descriptor& descriptor, uint64_t counter, uint64_t signal, uint64_t value) {
  descriptor[kCompletion] = 1 | counter << 1 | signal << 24 | (value & 0xffff) << 48;
  descriptor[kSignalValue] = 1 | value >> 16 << 8;
}

size_t place(const GinWindow& window, size_t offset) {
  return size_t{window.offset_4k} * 4096 + offset;
}

}  // namespace

Gin::Gin(NcclCommunicator communicator, int signals, int counters) : nccl_(communicator) {
  const Requirements wanted{.signals = signals, .counters = counters};
  require_nccl(more().create_device_communicator(nccl_, &wanted, &communicator_),
               "ncclDevCommCreate");
  constexpr uint8_t kProxy = 2;
  for (uint32_t i = 0; i < communicator_.contexts; ++i) {
    const uint32_t number = communicator_.first_context + i;
    const uint32_t connection = number % communicator_.connections;
    if (communicator_.types[connection] != kProxy) nccl::end_with("GIN is not that of a proxy");
    const uint64_t array = communicator_.handles[connection];
    const auto context =
        from_gpu<Context>(array + number / communicator_.connections * sizeof(Context));
    contexts_.push_back(
        {context, connection, std::vector<uint32_t>(static_cast<size_t>(communicator_.ranks))});
    for (size_t peer = 0; peer < contexts_.back().posted.size(); ++peer) {
      contexts_.back().posted[peer] = context.consumed[peer];
    }
  }
}

Gin::~Gin() {
  require_nccl(more().destroy_device_communicator(nccl_, &communicator_), "ncclDevCommDestroy");
}

GinWindow Gin::window(void* handle) {
  return from_gpu<GinWindow>(reinterpret_cast<uint64_t>(handle));
}

uint64_t Gin::handle(int context, const GinWindow& window) const {
  return window.handles[contexts_[static_cast<size_t>(context)].connection];
}

void Gin::post(int context, int peer, const Descriptor& descriptor) {
  Queues& queues = contexts_[static_cast<size_t>(context)];
  const auto place = static_cast<size_t>(peer);
  uint32_t& posted = queues.posted[place];
  const std::atomic_ref consumed(queues.context.consumed[place]);
  while (posted - consumed.load() >= queues.context.entries) sched_yield();
  Descriptor& to =
      queues.context.queues[place * queues.context.entries + posted % queues.context.entries];
  for (size_t word = kWords; word-- > 0;) {
    std::atomic_ref(to[word]).store(descriptor[word] | 1);
  }
  ++posted;
}

void Gin::put(int context, const GinPut& put, const GinSignal* signal, int counter) {
  const GinWindow& from = *put.from;
  start(context, put, {kPut, present(place(from, put.from_offset)), present(handle(context, from))},
        signal, counter);
}

void Gin::put_value(int context, const GinPut& put, uint64_t value, const GinSignal* signal) {
  start(context, put, {kPut | kInline, 1 | (value & 0xffffffffffff) << 8, 1 | value >> 48 << 8},
        signal, -1);
}

void Gin::start(int context, const GinPut& put, Source source, const GinSignal* signal,
                int counter) {
  Descriptor made{};
  uint64_t operation = source.operation;
  if (counter >= 0) operation |= kCounter;
  if (signal != nullptr) operation |= signal->add > 0 ? kAdd : kIncrement;
  set_completion(made,
                 counter >= 0 ? communicator_.first_counter + static_cast<uint32_t>(counter) : 0,
                 signal != nullptr ? communicator_.first_signal + signal->id : 0,
                 signal != nullptr ? signal->add : 0);
  made[kHeader] = 1 | operation << 1 | put.bytes << 7;
  made[kFrom] = source.from;
  made[kFromWindow] = source.window;
  made[kTo] = present(place(*put.to, put.to_offset));
  made[kToWindow] = present(handle(context, *put.to));
  post(context, put.peer, made);
}

void Gin::add(int context, int peer, const GinWindow& to, size_t offset, uint64_t value) {
  Descriptor made{};
  set_completion(made, 0, 0, value);
  made[kHeader] = 1 | uint64_t{kIntoWindow | kAdd} << 1;
  made[kFrom] = present(place(to, offset));
  made[kFromWindow] = present(handle(context, to));
  post(context, peer, made);
}

void Gin::flush(int context) {
  const Queues& queues = contexts_[static_cast<size_t>(context)];
  for (size_t peer = 0; peer < queues.posted.size(); ++peer) {
    const std::atomic_ref consumed(queues.context.consumed[peer]);
    while (consumed.load() != queues.posted[peer]) sched_yield();
  }
}

uint64_t Gin::signal(int context, uint32_t id) const {
  const auto& signals = contexts_[static_cast<size_t>(context)].context.signals;
  return from_gpu<uint64_t>(signals + (communicator_.first_signal + id) * sizeof(uint64_t));
}

uint64_t Gin::counter(int context, int id) const {
  const auto& counters = contexts_[static_cast<size_t>(context)].context.counters;
  const uint32_t number = communicator_.first_counter + static_cast<uint32_t>(id);
  return from_gpu<uint64_t>(counters + number * sizeof(uint64_t));
}

}  // namespace pacecar::nccl_test
