// The host's side of the tuner's interface: a plugin's table of any version, called as if it were
// the newest, as NCCL does for old plugins.
//
// Thread rule: as the plugin's own; init before all else.
#pragma once

#include <memory>

#include "net_plugin/abi/tuner.h"

namespace pacecar::nccl {

class AnyTuner {
 public:
  virtual ~AnyTuner() = default;
  AnyTuner(const AnyTuner&) = delete;
  AnyTuner& operator=(const AnyTuner&) = delete;

  int version() const { return version_; }
  virtual const char* name() const = 0;
  // `domains` may be nullptr.
  virtual NcclResult init(void** context, size_t ranks, size_t nodes, Logger logger,
                          NvlDomainsV5* domains) const = 0;
  // A choice of version 2 is an entry of 0, unless it was ruled out.
  virtual NcclResult getCollInfo(void* context, TunedFunction function, size_t bytes,
                                 int operations, float* costs, int algorithms, int protocols,
                                 int* channels) const = 0;
  virtual NcclResult finalize(void* context) const = 0;

 protected:
  explicit AnyTuner(int version) : version_(version) {}

 private:
  int version_;
};

// As find_net.
std::unique_ptr<AnyTuner> find_tuner(void* library, int version);

}  // namespace pacecar::nccl
