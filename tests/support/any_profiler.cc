#include "tests/support/any_profiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>

namespace pacecar::nccl {
namespace {

// As version 1 has it: ncclFunc_t, ncclDataType_t.
uint8_t number_of_function(const char* name) {
  constexpr std::array<std::string_view, 8> kNames = {
      "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
  return static_cast<uint8_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}
constexpr uint8_t kFloat32 = 7;  // what our players of NCCL move

template <typename Table, typename Event, typename StateArguments, int kVersion>
struct Adapted {
  static inline const Table* table = nullptr;
  static inline uint64_t communicator = 0;

  static NcclResult init(void** context, uint64_t comm_id, int* activation_mask, const char* name,
                         int nodes, int ranks, int rank, Logger logger) {
    communicator = comm_id;
    if constexpr (kVersion >= 5) {
      return table->init(context, comm_id, activation_mask, name, nodes, ranks, rank, logger);
    } else if constexpr (kVersion == 4) {
      return table->init(context, activation_mask, name, comm_id, nodes, ranks, rank, logger);
    } else {
      return table->init(context, activation_mask);
    }
  }

  static NcclResult start(void* context, void** handle, ProfileEventV6* event) {
    if constexpr (std::is_same_v<Event, ProfileEventV6>) {
      return table->startEvent(context, handle, event);
    } else {
      Event old{};
      old.type = static_cast<decltype(old.type)>(event->type);
      old.parent = event->parent;
      old.rank = event->rank;
      if (translate(*event, old)) return table->startEvent(context, handle, &old);
      *handle = nullptr;
      return NcclResult::kSuccess;
    }
  }

  static NcclResult change(void* handle, ProfileState state, ProfileStateArgumentsV4* arguments) {
    if constexpr (std::is_same_v<StateArguments, ProfileStateArgumentsV4>) {
      return table->recordEventState(handle, state, arguments);
    } else {
      if (state == ProfileState::kSendPeerWait) return NcclResult::kSuccess;
      StateArguments old{};
      old.proxy_op.bytes = arguments->proxy_step.bytes;
      return table->recordEventState(handle, state, &old);
    }
  }

  // False for a kind that the version does not have.
  static bool translate(const ProfileEventV6& event, Event& old) {
    switch (static_cast<int>(event.type)) {
      case kProfileCollective:
        fill(event.collective, old.collective);
        return true;
      case kProfilePointToPoint:
        fill(event.point_to_point, old.point_to_point);
        old.point_to_point.peer = event.point_to_point.peer;
        return true;
      case kProfileProxyOp:
        old.proxy_op = event.proxy_op;
        return true;
      case kProfileProxyStep:
        old.proxy_step = event.proxy_step;
        return true;
      case kProfileNetPlugin:
        old.net_plugin = event.net_plugin;
        return kVersion >= 3;
      case kProfileKernelChannel:
        old.kernel_channel.channel = event.kernel_channel.channel;
        if constexpr (kVersion >= 4) old.kernel_channel = event.kernel_channel;
        return kVersion >= 3;
      default:
        return true;
    }
  }

  template <typename From, typename To>
  static void fill(const From& from, To& to) {
    to.count = from.count;
    if constexpr (kVersion == 1) {
      to.function = number_of_function(from.function);
      to.datatype = kFloat32;
    } else {
      to.function = from.function;
      to.datatype = from.datatype;
    }
    if constexpr (requires { to.comm_hash; }) to.comm_hash = communicator;
    if constexpr (requires { from.sequence; }) {
      to.sequence = from.sequence;
      to.root = from.root;
    }
  }
};

template <int kVersion, typename Init, typename Event, typename StateArguments>
ProfilerV6 adapt(const Profiler<Init, Event, StateArguments>* table) {
  using To = Adapted<Profiler<Init, Event, StateArguments>, Event, StateArguments, kVersion>;
  To::table = table;
  return {table->name, To::init, To::start, table->stopEvent, To::change, table->finalize};
}

}  // namespace

ProfilerV6 find_profiler(void* library, int version) {
  const std::string symbol = "ncclProfiler_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return {};
  switch (version) {
    case 1:
      return adapt<1>(static_cast<const ProfilerV1*>(table));
    case 2:
      return adapt<2>(static_cast<const ProfilerV2*>(table));
    case 3:
      return adapt<3>(static_cast<const ProfilerV3*>(table));
    case 4:
      return adapt<4>(static_cast<const ProfilerV4*>(table));
    default:
      return *static_cast<const ProfilerV6*>(table);
  }
}

}  // namespace pacecar::nccl
