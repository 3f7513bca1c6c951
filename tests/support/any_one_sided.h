// NCCL's side of the interface for one-sided operations: a plugin's GIN or RMA table of any
// version, called as if it were the newest.
//
// Thread rule: as the plugin; init comes first.
#pragma once

#include <dlfcn.h>

#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>

#include "net_plugin/abi/one_sided.h"

namespace pacecar::nccl {

// The symbols of all versions.
inline constexpr std::array<const char*, 7> kOneSidedSymbols = {
    "ncclGinPlugin_v11", "ncclGinPlugin_v12", "ncclGinPlugin_v13", "ncclRmaPlugin_v13",
    "ncclRmaPlugin_v14", "ncclRmaPlugin_v15", "ncclRmaPlugin_v16"};

// An offset in a rank's window.
struct WindowPlace {
  void* window = nullptr;
  uint64_t offset = 0;
};
struct SignalPart {
  WindowPlace word;  // 8 bytes
  uint64_t value = 0;
  uint32_t operation = kSignalAdd;
};

// The members have NCCL's names. In versions without contexts the communicator serves as context.
class AnyOneSided {
  // Calls `body(table)`.
  template <typename Body>
  auto call(Body body) const {
    return std::visit([&](const auto* table) { return body(*table); }, table_);
  }
  template <typename Field>
  int of_properties(int device, Field field) const {
    return call([&]<typename T>(const T& table) {
      constexpr bool kNewer = requires { table.iget; };
      std::conditional_t<kNewer, NetPropertiesV12, NetPropertiesV11> properties{};
      const NcclResult result = table.getProperties(device, &properties);
      return result == NcclResult::kSuccess ? field(properties) : kUndefined;
    });
  }

 public:
  // RmaV13 is GinV13.
  using Table = std::variant<const GinV11*, const GinV12*, const GinV13*, const RmaV14*,
                             const RmaV15*, const RmaV16*>;
  template <typename T>
  static constexpr bool kHasFlags = std::is_same_v<T, RmaV15> || std::is_same_v<T, RmaV16>;

  explicit AnyOneSided(Table table) : table_(table) {}

  const char* name() const {
    return call([](const auto& table) { return table.name; });
  }
  // Whether it has iget and iflush.
  bool gets() const { return !is<GinV11>() && !is<GinV12>(); }
  NcclResult init(void** context, uint64_t comm_id, Logger logger) const {
    return call([&](const auto& table) { return table.init(context, comm_id, logger); });
  }
  // Two of the device's properties.
  int device_type(int device) const {
    return of_properties(device, [](const auto& properties) { return properties.device_type; });
  }
  int pointer_support(int device) const {
    return of_properties(device, [](const auto& properties) { return properties.pointer_support; });
  }
  NcclResult listen(void* context, int device, void* handle, void** listen_comm) const {
    return call(
        [&](const auto& table) { return table.listen(context, device, handle, listen_comm); });
  }
  NcclResult connect(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                     void** collective) const {
    return call([&]<typename T>(const T& table) {
      if constexpr (std::is_same_v<T, GinV12>) {
        return table.connect(context, handles, ranks, rank, 1, 0, listen_comm, collective);
      } else {
        return table.connect(context, handles, ranks, rank, listen_comm, collective);
      }
    });
  }
  NcclResult createContext(void* collective, int contexts, void** context) const {
    return call([&]<typename T>(const T& table) {
      if constexpr (std::is_same_v<T, GinV13>) {
        GinConfigV13 config{.contexts = contexts, .traffic_class = kUndefined};
        return table.createContext(collective, &config, context, nullptr);
      } else if constexpr (requires { table.rmaProgress; }) {
        RmaConfigV14 config{.contexts = contexts, .traffic_class = kUndefined, .rank_stride = 1};
        return table.createContext(collective, &config, context);
      } else {
        *context = collective;
        return NcclResult::kSuccess;
      }
    });
  }
  // Whether NCCL need not flush for each peer.
  bool any_signal_flushes_all_puts(void* collective) const {
    return call([&](const auto& table) {
      RmaPropertiesV16 properties{.any_signal_flushes_all_puts = true};
      if constexpr (requires { table.getRmaProperties(collective, &properties); }) {
        return table.getRmaProperties(collective, &properties) != NcclResult::kSuccess ||
               properties.any_signal_flushes_all_puts;
      }
      return false;
    });
  }
  NcclResult destroyContext(void* context) const {
    if (!gets()) return NcclResult::kSuccess;
    return call([&](const auto& table) { return table.destroyContext(context); });
  }
  NcclResult regMrSym(void* collective, void* data, size_t size, int type, void** window) const {
    return call([&](const auto& table) {
      if constexpr (requires { table.ginProgress; }) {
        void* gin_window = nullptr;
        const NcclResult result =
            table.regMrSym(collective, data, size, type, 0, window, &gin_window);
        return gin_window == *window ? result : NcclResult::kInternalError;
      } else {
        return table.regMrSym(collective, data, size, type, 0, window);
      }
    });
  }
  NcclResult deregMrSym(void* collective, void* window) const {
    return call([&](const auto& table) { return table.deregMrSym(collective, window); });
  }
  NcclResult closeColl(void* collective) const {
    return call([&](const auto& table) { return table.closeColl(collective); });
  }
  NcclResult closeListen(void* listen_comm) const {
    return call([&](const auto& table) { return table.closeListen(listen_comm); });
  }
  NcclResult iput(void* context, int number, const WindowPlace& from, size_t size,
                  const WindowPlace& to, uint32_t rank, void** request) const {
    return call([&]<typename T>(const T& table) {
      if constexpr (std::is_same_v<T, GinV11>) {
        return table.iput(context, from.offset, from.window, size, to.offset, to.window, rank,
                          request);
      } else if constexpr (std::is_same_v<T, GinV12>) {
        return table.iput(context, from.offset, from.window, size, to.offset, to.window, rank,
                          number, request);
      } else if constexpr (kHasFlags<T>) {
        return table.iput(context, number, from.offset, from.window, size, to.offset, to.window,
                          rank, 0, request);
      } else {
        return table.iput(context, number, from.offset, from.window, size, to.offset, to.window,
                          rank, request);
      }
    });
  }
  NcclResult iputSignal(void* context, int number, const WindowPlace& from, size_t size,
                        const WindowPlace& to, uint32_t rank, const SignalPart& signal,
                        void** request) const {
    const WindowPlace& word = signal.word;
    return call([&]<typename T>(const T& table) {
      if constexpr (std::is_same_v<T, GinV11>) {
        return table.iputSignal(context, from.offset, from.window, size, to.offset, to.window, rank,
                                word.offset, word.window, signal.value, signal.operation, request);
      } else if constexpr (std::is_same_v<T, GinV12>) {
        return table.iputSignal(context, from.offset, from.window, size, to.offset, to.window, rank,
                                word.offset, word.window, signal.value, signal.operation, number,
                                request);
      } else if constexpr (std::is_same_v<T, GinV13>) {
        return table.iputSignal(context, number, from.offset, from.window, size, to.offset,
                                to.window, rank, word.offset, word.window, signal.value,
                                signal.operation, request);
      } else if constexpr (std::is_same_v<T, RmaV14>) {
        return table.iputSignal(context, number, from.offset, from.window, size, to.offset,
                                to.window, rank, word.offset, word.window, signal.value,
                                signal.operation, true, request);
      } else {
        return table.iputSignal(context, number, from.offset, from.window, size, to.offset,
                                to.window, rank, word.offset, word.window, signal.value,
                                signal.operation, true, 0, request);
      }
    });
  }
  // iget and iflush: kInvalidUsage where !gets().
  NcclResult iget(void* context, int number, const WindowPlace& from, size_t size,
                  const WindowPlace& to, uint32_t rank, void** request) const {
    return call([&]<typename T>(const T& table) {
      if constexpr (kHasFlags<T>) {
        return table.iget(context, number, from.offset, from.window, size, to.offset, to.window,
                          rank, 0, request);
      } else if constexpr (requires { table.iget; }) {
        return table.iget(context, number, from.offset, from.window, size, to.offset, to.window,
                          rank, request);
      } else {
        return NcclResult::kInvalidUsage;
      }
    });
  }
  NcclResult iflush(void* context, int number, void* window, uint32_t rank, void** request) const {
    return call([&](const auto& table) {
      if constexpr (requires { table.iflush; }) {
        return table.iflush(context, number, window, rank, request);
      } else {
        return NcclResult::kInvalidUsage;
      }
    });
  }
  NcclResult test(void* collective, void* request, int* done) const {
    return call([&](const auto& table) { return table.test(collective, request, done); });
  }
  NcclResult progress(void* context) const {
    return call([&](const auto& table) {
      if constexpr (requires { table.ginProgress; }) {
        return table.ginProgress(context);
      } else {
        return table.rmaProgress(context);
      }
    });
  }
  NcclResult queryLastError(void* context, bool* has_error) const {
    return call([&](const auto& table) { return table.queryLastError(context, has_error); });
  }
  NcclResult finalize(void* context) const {
    return call([&](const auto& table) { return table.finalize(context); });
  }

 private:
  template <typename T>
  bool is() const {
    return std::holds_alternative<const T*>(table_);
  }
  Table table_;
};

template <typename T>
std::unique_ptr<AnyOneSided> one_sided_at(const void* table) {
  return std::make_unique<AnyOneSided>(static_cast<const T*>(table));
}

// The table of that symbol in a loaded library, which outlives it; nullptr when it has none.
inline std::unique_ptr<AnyOneSided> find_one_sided(void* library, const std::string& symbol) {
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return nullptr;
  if (symbol.ends_with("_v11")) return one_sided_at<GinV11>(table);
  if (symbol.ends_with("_v12")) return one_sided_at<GinV12>(table);
  if (symbol.ends_with("_v13")) return one_sided_at<GinV13>(table);  // of either kind
  if (symbol.ends_with("_v14")) return one_sided_at<RmaV14>(table);
  if (symbol.ends_with("_v15")) return one_sided_at<RmaV15>(table);
  return one_sided_at<RmaV16>(table);
}

}  // namespace pacecar::nccl
