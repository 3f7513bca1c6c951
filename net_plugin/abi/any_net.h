// The host's side of the interface: a plugin's table of any version, called as if it were the
// newest. It does what NCCL does for old plugins, for programs that play NCCL: tests, benchmarks,
// check-plugin.
//
// Thread rule: as the plugin's own; init before all else.
#pragma once

#include <memory>

#include "net_plugin/abi/properties.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

// Which of the functions that a plugin may leave out are there.
struct Offered {
  bool dma_buf = false;
  bool flush = false;
  bool device_memory = false;
  bool consumed = false;
  bool virtual_devices = false;
  bool finalize = false;
  bool attributes = false;
};

// The members keep NCCL's names. A version that lacks a function answers kSuccess where it need not
// be called (finalize, setNetAttr), and kInvalidUsage where the caller should have asked offered().
class AnyNet {
 public:
  virtual ~AnyNet() = default;
  AnyNet(const AnyNet&) = delete;
  AnyNet& operator=(const AnyNet&) = delete;

  int version() const { return version_; }
  virtual const char* name() const = 0;
  virtual Offered offered() const = 0;

  // Before version 11 the context means nothing, but is not nullptr when init succeeded.
  virtual NcclResult init(void** context, uint64_t comm_id, const CommConfig& config, Logger logger,
                          ProfilerCallback profiler) = 0;
  virtual NcclResult devices(int* count) const = 0;
  // Properties that a version lacks get NCCL's default.
  virtual NcclResult getProperties(int device, NetPropertiesV12* properties) const = 0;
  // kInvalidUsage, too, for more members than the version can express.
  virtual NcclResult makeVDevice(int* device, const VirtualDeviceV12& members) const = 0;
  virtual NcclResult listen(void* context, int device, void* handle, void** listen_comm) const = 0;
  virtual NcclResult connect(void* context, int device, void* handle, void** send_comm,
                             DeviceHandle** device_handle) const = 0;
  virtual NcclResult accept(void* listen_comm, void** receive_comm,
                            DeviceHandle** device_handle) const = 0;
  virtual NcclResult regMr(void* comm, void* data, size_t size, int type, void** memory) const = 0;
  virtual NcclResult regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset,
                                 int fd, void** memory) const = 0;
  virtual NcclResult deregMr(void* comm, void* memory) const = 0;
  // kInternalError for a size that the version cannot express.
  virtual NcclResult isend(void* send_comm, void* data, size_t size, int tag, void* memory,
                           void* profiler_handle, void** request) const = 0;
  virtual NcclResult irecv(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                           void** memories, void** profiler_handles, void** request) const = 0;
  virtual NcclResult iflush(void* receive_comm, int count, void** data, int* sizes, void** memories,
                            void** request) const = 0;
  virtual NcclResult test(void* request, int* done, int* sizes) const = 0;
  virtual NcclResult closeSend(void* send_comm) const = 0;
  virtual NcclResult closeRecv(void* receive_comm) const = 0;
  virtual NcclResult closeListen(void* listen_comm) const = 0;
  virtual NcclResult finalize(void* context) const = 0;
  virtual NcclResult setNetAttr(void* context, NetAttributes* attributes) const = 0;

 protected:
  explicit AnyNet(int version) : version_(version) {}

 private:
  int version_;
};

// The table of this version in a loaded library, which outlives it; nullptr when it has none.
std::unique_ptr<AnyNet> find_net(void* library, int version);
// The newest that there is, as NCCL chooses.
std::unique_ptr<AnyNet> find_net(void* library);

}  // namespace pacecar::nccl
