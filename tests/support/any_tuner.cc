#include "tests/support/any_tuner.h"

#include <dlfcn.h>

#include <string>

namespace pacecar::nccl {
namespace {

constexpr uint64_t kCommunicator = 0x1234;

template <typename Table, int kVersion>
class TunerOf final : public AnyTuner {
 public:
  explicit TunerOf(const Table& table) : AnyTuner(kVersion), table_(table) {}

  const char* name() const override { return table_.name; }

  NcclResult init(void** context, size_t ranks, size_t nodes, Logger logger,
                  NvlDomainsV5* domains) const override {
    if constexpr (kVersion >= 5) {
      return table_.init(context, kCommunicator, ranks, nodes, logger, domains, nullptr);
    } else {
      return table_.init(ranks, nodes, logger, context);
    }
  }

  NcclResult getCollInfo(void* context, TunedFunction function, size_t bytes, int operations,
                         float* costs, int algorithms, int protocols,
                         int* channels) const override {
    if constexpr (kVersion == 2) {
      return choose(context, function, bytes, operations, costs, algorithms, protocols, channels);
    } else {
      auto* const table = reinterpret_cast<float**>(costs);
      if constexpr (kVersion == 3) {
        return table_.getCollInfo(context, function, bytes, operations, table, algorithms,
                                  protocols, channels);
      } else {
        return table_.getCollInfo(context, function, bytes, operations, table, algorithms,
                                  protocols, 0, channels);
      }
    }
  }

  NcclResult finalize(void* context) const override {
    if constexpr (kVersion >= 5) {
      return table_.finalize(context);
    } else {
      return table_.destroy(context);
    }
  }

 private:
  NcclResult choose(void* context, TunedFunction function, size_t bytes, int operations,
                    float* costs, int algorithms, int protocols, int* channels) const
      requires(kVersion == 2) {
    int algorithm = kUndefined;
    int protocol = kUndefined;
    const NcclResult result = table_.getCollInfo(context, function, bytes, 0, 0, operations,
                                                 &algorithm, &protocol, channels);
    const bool chosen =
        algorithm >= 0 && algorithm < algorithms && protocol >= 0 && protocol < protocols;
    if (costs != nullptr && chosen && costs[algorithm * protocols + protocol] != kRuledOut) {
      costs[algorithm * protocols + protocol] = 0;
    }
    return result;
  }

  const Table& table_;
};

template <typename Table, int kVersion>
std::unique_ptr<AnyTuner> make_tuner(const void* table) {
  return std::make_unique<TunerOf<Table, kVersion>>(*static_cast<const Table*>(table));
}

}  // namespace

std::unique_ptr<AnyTuner> find_tuner(void* library, int version) {
  const std::string symbol = "ncclTunerPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return nullptr;
  switch (version) {
    case 2:
      return make_tuner<TunerV2, 2>(table);
    case 3:
      return make_tuner<TunerV3, 3>(table);
    case 4:
      return make_tuner<TunerV4, 4>(table);
    case 5:
      return make_tuner<TunerV5, 5>(table);
    case 6:
      return make_tuner<TunerV6, 6>(table);
    default:
      return nullptr;
  }
}

}  // namespace pacecar::nccl
