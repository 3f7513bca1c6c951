#include "tests/nccl/more_calls.h"

#include <dlfcn.h>

#include "bench/nccl/gpu/device.h"

namespace pacecar::nccl_test {
namespace {

MoreCalls loaded;

template <typename Function>
void find(void* library, const char* name, Function& to) {
  to = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

void load_all(const std::string& nccl_file) {
  nccl::load_libraries(nccl_file);
  void* const library = dlopen(nccl_file.c_str(), RTLD_NOW | RTLD_LOCAL);
  find(library, "ncclCommInitRankConfig", loaded.init_with);
  find(library, "ncclCommSplit", loaded.split);
  find(library, "ncclCommCount", loaded.count);
  find(library, "ncclCommAbort", loaded.abort);
  find(library, "ncclCommFinalize", loaded.finalize);
  find(library, "ncclCommRegister", loaded.register_buffer);
  find(library, "ncclCommDeregister", loaded.deregister_buffer);
  find(library, "ncclMemAlloc", loaded.allocate);
  find(library, "ncclMemFree", loaded.release);
  find(library, "ncclCommWindowRegister", loaded.register_window);
  find(library, "ncclCommWindowDeregister", loaded.deregister_window);
  find(library, "ncclDevCommCreate", loaded.create_device_communicator);
  find(library, "ncclDevCommDestroy", loaded.destroy_device_communicator);
  find(library, "ncclRedOpCreatePreMulSum", loaded.create_scaled_sum);
  find(library, "ncclRedOpDestroy", loaded.destroy_operation);
  void* const cuda = dlopen(nccl::kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  find(cuda, "cuStreamBeginCapture_v2", loaded.begin_capture);
  find(cuda, "cuStreamEndCapture", loaded.end_capture);
  find(cuda, "cuGraphInstantiateWithFlags", loaded.instantiate);
  find(cuda, "cuGraphLaunch", loaded.launch);
  find(cuda, "cuGraphDestroy", loaded.destroy_graph);
  find(cuda, "cuGraphExecDestroy", loaded.destroy_executable);
}

const MoreCalls& more() { return loaded; }

}  // namespace pacecar::nccl_test
