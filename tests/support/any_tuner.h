// NCCL's side of the tuner's interface: calls a plugin's table of any version through one
// interface. Not covered: registered buffers, CollNet and NVLS (always 0).
//
// Thread rule: as the plugin's own; call init first.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <variant>

#include "net_plugin/abi/tuner.h"

namespace pacecar::nccl {

class AnyTuner {
  // Calls `body(table)`; `table` has the type of its version.
  template <typename Body>
  auto call(Body body) const {
    return std::visit([&](const auto* table) { return body(*table); }, table_);
  }

 public:
  using Table = std::variant<const TunerV3*, const TunerV4*, const TunerV5*, const TunerV6*>;

  explicit AnyTuner(Table table) : table_(table) {}

  const char* name() const {
    return call([](const auto& table) { return table.name; });
  }
  // `domains` may be nullptr.
  NcclResult init(void** context, size_t ranks, size_t nodes, Logger logger,
                  NvlDomainsV5* domains) const {
    constexpr uint64_t kCommunicator = 0x1234;
    return call([&](const auto& table) {
      if constexpr (requires { table.finalize; }) {
        return table.init(context, kCommunicator, ranks, nodes, logger, domains, nullptr);
      } else {
        return table.init(ranks, nodes, logger, context);
      }
    });
  }
  NcclResult getCollInfo(void* context, TunedFunction function, size_t bytes, int operations,
                         float* costs, int algorithms, int protocols, int* channels) const {
    return call([&]<typename T>(const T& table) {
      auto* const all = reinterpret_cast<float**>(costs);
      if constexpr (std::is_same_v<T, TunerV3>) {
        return table.getCollInfo(context, function, bytes, operations, all, algorithms, protocols,
                                 channels);
      } else {
        return table.getCollInfo(context, function, bytes, operations, all, algorithms, protocols,
                                 0, channels);
      }
    });
  }
  // `chunk_bytes` holds NCCL's own size, which stands where the table does not set it.
  NcclResult getChunkSize(void* context, TunedFunction function, size_t bytes,
                          TunedAlgorithm algorithm, TunedProtocol protocol, int channels,
                          size_t* chunk_bytes) const {
    return call([&](const auto& table) {
      if constexpr (requires { table.getChunkSize; }) {
        if (table.getChunkSize != nullptr) {
          return table.getChunkSize(context, function, bytes, static_cast<int>(algorithm),
                                    static_cast<int>(protocol), channels, chunk_bytes);
        }
      }
      return NcclResult::kSuccess;
    });
  }
  NcclResult finalize(void* context) const {
    return call([&](const auto& table) {
      if constexpr (requires { table.finalize; }) {
        return table.finalize(context);
      } else {
        return table.destroy(context);
      }
    });
  }

 private:
  Table table_;
};

template <typename T>
std::unique_ptr<AnyTuner> tuner_at(const void* table) {
  return std::make_unique<AnyTuner>(static_cast<const T*>(table));
}

// The library's tuner of this version; nullptr: it has none. The library must stay loaded.
inline std::unique_ptr<AnyTuner> find_tuner(void* library, int version) {
  const std::string symbol = "ncclTunerPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return nullptr;
  switch (version) {
    case 3: return tuner_at<TunerV3>(table);
    case 4: return tuner_at<TunerV4>(table);
    case 5: return tuner_at<TunerV5>(table);
    default: return tuner_at<TunerV6>(table);
  }
}

}  // namespace pacecar::nccl
