#include "bench/nccl/gpu/libraries.h"

#include <dlfcn.h>

namespace pacecar::nccl {
namespace {

Driver loaded_driver;
Nccl loaded_nccl;

template <typename Function>
void find(void* library, const char* symbol, Function& member, std::string& missing) {
  member = reinterpret_cast<Function>(dlsym(library, symbol));
  if (member == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
}

std::string lacks(const std::string& library, const std::string& missing) {
  return missing.empty() ? "" : library + " lacks " + missing + ": bring it up to date";
}

}  // namespace

#define PACECAR_FIND(member, symbol, ...) find(library, #symbol, loaded.member, missing);

std::string load_driver() {
  void* const library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  Driver& loaded = loaded_driver;
  std::string missing;
  PACECAR_DRIVER_CALLS(PACECAR_FIND)
  return lacks(kDriverLibrary, missing);
}

std::string load_nccl(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  Nccl& loaded = loaded_nccl;
  std::string missing;
  find(library, "ncclGetErrorString", loaded.error_string, missing);
  PACECAR_NCCL_CALLS(PACECAR_FIND)
  return lacks(file, missing);
}

#undef PACECAR_FIND

const Driver& driver() { return loaded_driver; }
const Nccl& nccl() { return loaded_nccl; }

}  // namespace pacecar::nccl
