#include "net_plugin/abi/any_profiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace pacecar::nccl {
namespace {

void logs_nothing(LogSeverity, unsigned long, const char*, int, const char*, ...) {}

// As version 1 has it: ncclFunc_t, ncclDataType_t.
uint8_t number_of_function(const char* name) {
  constexpr std::array<std::string_view, 8> kNames = {
      "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
  return static_cast<uint8_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}
constexpr uint8_t kFloat32 = 7;  // what our players of NCCL move

template <typename Table, typename Event, int kVersion>
class ProfilerOf final : public AnyProfiler {
 public:
  explicit ProfilerOf(const Table& table) : AnyProfiler(kVersion), table_(table) {}

  const char* name() const override { return table_.name; }

  NcclResult init(void** context, int* activation_mask, const Who& who) override {
    who_ = who;
    if constexpr (kVersion >= 5) {
      return table_.init(context, who.communicator, activation_mask, nullptr, who.nodes, who.ranks,
                         who.rank, logs_nothing);
    } else if constexpr (kVersion == 4) {
      return table_.init(context, activation_mask, nullptr, who.communicator, who.nodes, who.ranks,
                         who.rank, logs_nothing);
    } else {
      return table_.init(context, activation_mask);
    }
  }

  NcclResult startEvent(void* context, void** handle, const ProfileEventV6& event) const override {
    if constexpr (kVersion == 6) {
      ProfileEventV6 copy = event;
      return table_.startEvent(context, handle, &copy);
    } else {
      Event old{};
      old.type = static_cast<decltype(old.type)>(event.type);
      old.parent = event.parent;
      old.rank = event.rank;
      if (translate(event, old)) return table_.startEvent(context, handle, &old);
      *handle = nullptr;
      return NcclResult::kSuccess;
    }
  }

  NcclResult stopEvent(void* handle) const override { return table_.stopEvent(handle); }

  NcclResult recordEventState(void* handle, ProfileState state, size_t bytes) const override {
    if constexpr (kVersion >= 4) {
      ProfileStateArgumentsV4 arguments{};
      arguments.proxy_step.bytes = bytes;
      return table_.recordEventState(handle, state, &arguments);
    } else {
      if (state == ProfileState::kSendPeerWait) return NcclResult::kSuccess;
      ProfileStateArgumentsV1 arguments{};
      arguments.proxy_op.bytes = bytes;
      return table_.recordEventState(handle, state, &arguments);
    }
  }

  NcclResult finalize(void* context) const override { return table_.finalize(context); }

 private:
  // False for a kind that the version does not have.
  bool translate(const ProfileEventV6& event, Event& old) const {
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
        if constexpr (kVersion >= 3) old.net_plugin = event.net_plugin;
        return kVersion >= 3;
      case kProfileKernelChannel:
        if constexpr (kVersion >= 3) old.kernel_channel.channel = event.kernel_channel.channel;
        if constexpr (kVersion >= 4) old.kernel_channel = event.kernel_channel;
        return kVersion >= 3;
      default:
        return true;
    }
  }

  template <typename From, typename To>
  void fill(const From& from, To& to) const {
    to.count = from.count;
    if constexpr (kVersion == 1) {
      to.function = number_of_function(from.function);
      to.datatype = kFloat32;
    } else {
      to.function = from.function;
      to.datatype = from.datatype;
    }
    if constexpr (requires { to.comm_hash; }) to.comm_hash = who_.communicator;
    if constexpr (requires { from.sequence; }) {
      to.sequence = from.sequence;
      to.root = from.root;
    }
  }

  const Table& table_;
  Who who_;
};

template <typename Table, typename Event, int kVersion>
std::unique_ptr<AnyProfiler> make(const void* table) {
  return std::make_unique<ProfilerOf<Table, Event, kVersion>>(*static_cast<const Table*>(table));
}

}  // namespace

std::unique_ptr<AnyProfiler> find_profiler(void* library, int version) {
  const std::string symbol = "ncclProfiler_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return nullptr;
  switch (version) {
    case 1:
      return make<ProfilerV1, ProfileEventV1, 1>(table);
    case 2:
      return make<ProfilerV2, ProfileEventV2, 2>(table);
    case 3:
      return make<ProfilerV3, ProfileEventV3, 3>(table);
    case 4:
      return make<ProfilerV4, ProfileEventV4, 4>(table);
    case 5:
      return make<ProfilerV5, ProfileEventV5, 5>(table);
    case 6:
      return make<ProfilerV6, ProfileEventV6, 6>(table);
    default:
      return nullptr;
  }
}

std::unique_ptr<AnyProfiler> find_profiler(void* library) {
  for (int version = kNewestProfiler; version >= kOldestProfiler; --version) {
    if (auto profiler = find_profiler(library, version)) return profiler;
  }
  return nullptr;
}

}  // namespace pacecar::nccl
