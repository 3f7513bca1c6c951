#include "net_plugin/verbs/forward.h"

#include <dlfcn.h>

#include <array>

#include "transport/base/check.h"

namespace pacecar::ibverbs {
namespace {

constexpr const char* kName = "libibverbs.so.1";

// Whether the handle is a library other than this one.
bool is_real(void* handle) {
  Dl_info own{};
  Dl_info found{};
  void* const symbol = dlsym(handle, "ibv_get_device_list");
  return symbol != nullptr && dladdr(symbol, &found) != 0 &&
         dladdr(reinterpret_cast<void*>(&is_real), &own) != 0 && found.dli_fbase != own.dli_fbase;
}

void* find_real() {
  static constexpr std::array kNames = {kName, "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
                                        "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
                                        "/usr/lib64/libibverbs.so.1", "/usr/lib/libibverbs.so.1"};
  for (const char* const name : kNames) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr && is_real(handle)) return handle;
  }
  return nullptr;
}

void* real_library() {
  static void* const library = find_real();
  return library;
}

}  // namespace

bool real_has_devices() {
  static const bool loads_drivers = [] {
    void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    return handle != nullptr && is_real(handle);
  }();
  return loads_drivers;
}

bool have_real() { return real_library() != nullptr; }

void* real_function(const char* name) {
  PACECAR_CHECK(have_real());
  void* const function = dlsym(real_library(), name);
  PACECAR_CHECK(function != nullptr);
  return function;
}

}  // namespace pacecar::ibverbs
