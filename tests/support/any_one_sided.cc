#include "tests/support/any_one_sided.h"

#include <dlfcn.h>

namespace pacecar::nccl {
namespace {

template <typename Table, int kVersion>
class OneSidedOf final : public AnyOneSided {
 public:
  explicit OneSidedOf(const Table& table) : table_(table) {}

  const char* name() const override { return table_.name; }
  bool gets() const override { return kVersion >= 13; }

  NcclResult init(void** context, uint64_t comm_id, Logger logger) const override {
    return table_.init(context, comm_id, logger);
  }
  NcclResult devices(int* count) const override { return table_.devices(count); }
  int device_type(int device) const override { return properties(device).device_type; }
  int pointer_support(int device) const override { return properties(device).pointer_support; }
  NcclResult listen(void* context, int device, void* handle, void** listen_comm) const override {
    return table_.listen(context, device, handle, listen_comm);
  }

  NcclResult connect(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                     void** collective) const override {
    if constexpr (kVersion == 12) {
      return table_.connect(context, handles, ranks, rank, 1, 0, listen_comm, collective);
    } else {
      return table_.connect(context, handles, ranks, rank, listen_comm, collective);
    }
  }

  NcclResult createContext(void* collective, int contexts, void** context) const override {
    if constexpr (kVersion < 13) {
      *context = collective;
      return NcclResult::kSuccess;
    } else if constexpr (kVersion == 13) {
      GinConfigV13 config{.contexts = contexts, .traffic_class = kUndefined};
      return table_.createContext(collective, &config, context, nullptr);
    } else {
      RmaConfigV14 config{.contexts = contexts, .traffic_class = kUndefined, .rank_stride = 1};
      return table_.createContext(collective, &config, context);
    }
  }
  NcclResult destroyContext(void* context) const override {
    return kVersion < 13 ? NcclResult::kSuccess : table_.destroyContext(context);
  }

  NcclResult regMrSym(void* collective, void* data, size_t size, int type,
                      void** window) const override {
    if constexpr (kVersion <= 13) {
      void* gin_window = nullptr;
      const NcclResult result =
          table_.regMrSym(collective, data, size, type, 0, window, &gin_window);
      return gin_window == *window ? result : NcclResult::kInternalError;
    } else {
      return table_.regMrSym(collective, data, size, type, 0, window);
    }
  }
  NcclResult deregMrSym(void* collective, void* window) const override {
    return table_.deregMrSym(collective, window);
  }
  NcclResult closeColl(void* collective) const override { return table_.closeColl(collective); }
  NcclResult closeListen(void* listen_comm) const override {
    return table_.closeListen(listen_comm);
  }

  NcclResult iput(void* context, int number, const WindowPlace& from, size_t size,
                  const WindowPlace& to, uint32_t rank, void** request) const override {
    if constexpr (kVersion == 11) {
      return table_.iput(context, from.offset, from.window, size, to.offset, to.window, rank,
                         request);
    } else if constexpr (kVersion == 12) {
      return table_.iput(context, from.offset, from.window, size, to.offset, to.window, rank,
                         number, request);
    } else if constexpr (kVersion == 15) {
      return table_.iput(context, number, from.offset, from.window, size, to.offset, to.window,
                         rank, 0, request);
    } else {
      return table_.iput(context, number, from.offset, from.window, size, to.offset, to.window,
                         rank, request);
    }
  }

  NcclResult iputSignal(void* context, int number, const WindowPlace& from, size_t size,
                        const WindowPlace& to, uint32_t rank, const SignalPart& signal,
                        void** request) const override {
    const WindowPlace& word = signal.word;
    if constexpr (kVersion == 11) {
      return table_.iputSignal(context, from.offset, from.window, size, to.offset, to.window, rank,
                               word.offset, word.window, signal.value, signal.operation, request);
    } else if constexpr (kVersion == 12) {
      return table_.iputSignal(context, from.offset, from.window, size, to.offset, to.window, rank,
                               word.offset, word.window, signal.value, signal.operation, number,
                               request);
    } else if constexpr (kVersion == 13) {
      return table_.iputSignal(context, number, from.offset, from.window, size, to.offset,
                               to.window, rank, word.offset, word.window, signal.value,
                               signal.operation, request);
    } else if constexpr (kVersion == 14) {
      return table_.iputSignal(context, number, from.offset, from.window, size, to.offset,
                               to.window, rank, word.offset, word.window, signal.value,
                               signal.operation, true, request);
    } else {
      return table_.iputSignal(context, number, from.offset, from.window, size, to.offset,
                               to.window, rank, word.offset, word.window, signal.value,
                               signal.operation, true, 0, request);
    }
  }

  NcclResult iget(void* context, int number, const WindowPlace& from, size_t size,
                  const WindowPlace& to, uint32_t rank, void** request) const override {
    if constexpr (kVersion < 13) {
      return NcclResult::kInvalidUsage;
    } else if constexpr (kVersion == 15) {
      return table_.iget(context, number, from.offset, from.window, size, to.offset, to.window,
                         rank, 0, request);
    } else {
      return table_.iget(context, number, from.offset, from.window, size, to.offset, to.window,
                         rank, request);
    }
  }

  NcclResult iflush(void* context, int number, void* window, uint32_t rank,
                    void** request) const override {
    if constexpr (kVersion < 13) {
      return NcclResult::kInvalidUsage;
    } else {
      return table_.iflush(context, number, window, rank, request);
    }
  }

  NcclResult test(void* collective, void* request, int* done) const override {
    return table_.test(collective, request, done);
  }
  NcclResult progress(void* context) const override {
    if constexpr (kVersion <= 13) {
      return table_.ginProgress(context);
    } else {
      return table_.rmaProgress(context);
    }
  }
  NcclResult queryLastError(void* context, bool* has_error) const override {
    return table_.queryLastError(context, has_error);
  }
  NcclResult finalize(void* context) const override { return table_.finalize(context); }

 private:
  auto properties(int device) const {
    std::conditional_t<kVersion >= 13, NetPropertiesV12, NetPropertiesV11> properties{};
    if (table_.getProperties(device, &properties) != NcclResult::kSuccess) {
      properties.device_type = kUndefined;
    }
    return properties;
  }

  const Table& table_;
};

template <typename Table, int kVersion>
std::unique_ptr<AnyOneSided> make(const void* table) {
  return std::make_unique<OneSidedOf<Table, kVersion>>(*static_cast<const Table*>(table));
}

}  // namespace

std::unique_ptr<AnyOneSided> find_one_sided(void* library, const std::string& symbol) {
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) return nullptr;
  if (symbol == "ncclGinPlugin_v11") return make<GinV11, 11>(table);
  if (symbol == "ncclGinPlugin_v12") return make<GinV12, 12>(table);
  if (symbol == "ncclGinPlugin_v13") return make<GinV13, 13>(table);
  if (symbol == "ncclRmaPlugin_v13") return make<RmaV13, 13>(table);
  if (symbol == "ncclRmaPlugin_v14") return make<RmaV14, 14>(table);
  if (symbol == "ncclRmaPlugin_v15") return make<RmaV15, 15>(table);
  return nullptr;
}

}  // namespace pacecar::nccl
