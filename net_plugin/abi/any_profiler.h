// The host's side of the profiler's interface: a plugin's table of any version, called as if it
// were the newest, as NCCL does for old plugins.
//
// Thread rule: as the plugin's own; init before all else.
#pragma once

#include <memory>

#include "net_plugin/abi/profiler.h"

namespace pacecar::nccl {

class AnyProfiler {
 public:
  struct Who {
    uint64_t communicator = 0;
    int nodes = 1;
    int ranks = 1;
    int rank = 0;
  };

  virtual ~AnyProfiler() = default;
  AnyProfiler(const AnyProfiler&) = delete;
  AnyProfiler& operator=(const AnyProfiler&) = delete;

  int version() const { return version_; }
  virtual const char* name() const = 0;
  virtual NcclResult init(void** context, int* activation_mask, const Who& who) = 0;
  // kSuccess without a call for kinds that the version lacks.
  virtual NcclResult startEvent(void* context, void** handle,
                                const ProfileEventV6& event) const = 0;
  virtual NcclResult stopEvent(void* handle) const = 0;
  virtual NcclResult recordEventState(void* handle, ProfileState state, size_t bytes) const = 0;
  virtual NcclResult finalize(void* context) const = 0;

 protected:
  explicit AnyProfiler(int version) : version_(version) {}

 private:
  int version_;
};

// As find_net.
std::unique_ptr<AnyProfiler> find_profiler(void* library, int version);
std::unique_ptr<AnyProfiler> find_profiler(void* library);

}  // namespace pacecar::nccl
