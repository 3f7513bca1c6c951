// The host's side of the interface for one-sided operations: a plugin's GIN or RMA table of any
// version, called as if it were the newest.
//
// Thread rule: as the plugin's own; init before all else.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "net_plugin/abi/one_sided.h"

namespace pacecar::nccl {

// The symbols of all versions.
inline constexpr std::array<const char*, 6> kOneSidedSymbols = {
    "ncclGinPlugin_v11", "ncclGinPlugin_v12", "ncclGinPlugin_v13",
    "ncclRmaPlugin_v13", "ncclRmaPlugin_v14", "ncclRmaPlugin_v15"};

// A place in a rank's window.
struct WindowPlace {
  void* window = nullptr;
  uint64_t offset = 0;
};
struct SignalPart {
  WindowPlace word;
  uint64_t value = 0;
  uint32_t operation = kSignalAdd;
};

// The members keep NCCL's names. In versions without contexts the communicator takes their place.
class AnyOneSided {
 public:
  virtual ~AnyOneSided() = default;
  AnyOneSided(const AnyOneSided&) = delete;
  AnyOneSided& operator=(const AnyOneSided&) = delete;

  virtual const char* name() const = 0;
  virtual bool gets() const = 0;  // whether it has iget and iflush
  virtual NcclResult init(void** context, uint64_t comm_id, Logger logger) const = 0;
  virtual NcclResult devices(int* count) const = 0;
  // Of its properties.
  virtual int device_type(int device) const = 0;
  virtual int pointer_support(int device) const = 0;
  virtual NcclResult listen(void* context, int device, void* handle, void** listen_comm) const = 0;
  virtual NcclResult connect(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                             void** collective) const = 0;
  virtual NcclResult createContext(void* collective, int contexts, void** context) const = 0;
  virtual NcclResult regMrSym(void* collective, void* data, size_t size, int type,
                              void** window) const = 0;
  virtual NcclResult deregMrSym(void* collective, void* window) const = 0;
  virtual NcclResult destroyContext(void* context) const = 0;
  virtual NcclResult closeColl(void* collective) const = 0;
  virtual NcclResult closeListen(void* listen_comm) const = 0;
  virtual NcclResult iput(void* context, int number, const WindowPlace& from, size_t size,
                          const WindowPlace& to, uint32_t rank, void** request) const = 0;
  virtual NcclResult iputSignal(void* context, int number, const WindowPlace& from, size_t size,
                                const WindowPlace& to, uint32_t rank, const SignalPart& signal,
                                void** request) const = 0;
  // Both kInvalidUsage where !gets().
  virtual NcclResult iget(void* context, int number, const WindowPlace& from, size_t size,
                          const WindowPlace& to, uint32_t rank, void** request) const = 0;
  virtual NcclResult iflush(void* context, int number, void* window, uint32_t rank,
                            void** request) const = 0;
  virtual NcclResult test(void* collective, void* request, int* done) const = 0;
  virtual NcclResult progress(void* context) const = 0;
  virtual NcclResult queryLastError(void* context, bool* has_error) const = 0;
  virtual NcclResult finalize(void* context) const = 0;

 protected:
  AnyOneSided() = default;
};

// The table of that symbol in a loaded library, which outlives it; nullptr when it has none.
std::unique_ptr<AnyOneSided> find_one_sided(void* library, const std::string& symbol);

}  // namespace pacecar::nccl
