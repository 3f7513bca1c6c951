#include "transport/io/dpdk/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

#include "transport/base/module_path.h"

namespace pacecar {
namespace {

tl::unexpected<Error> not_loaded(const std::string& file, std::string_view reason) {
  if (reason.find(file + ": cannot open") != std::string_view::npos) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("DPDK devices need {}, which is neither in the folder pacecar beside "
                            "Pacecar's libraries nor where the system looks for libraries: install "
                            "it from the same build (pacecar-dpdk), one that was made with "
                            "libdpdk-dev",
                            file));
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("DPDK is not there ({}): install DPDK 22.11 with its drivers "
                          "(librte-meta-net, librte-meta-mempool)",
                          reason));
}

}  // namespace

Result<const DpdkModule*> load_dpdk_module(const std::string& file) {
  const std::string path = module_path(file);
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return not_loaded(file, dlerror());
  const auto* const module = static_cast<const DpdkModule*>(dlsym(loaded, "pacecar_module"));
  if (module == nullptr || std::string_view(module->build) != PACECAR_DPDK_BUILD) {
    dlclose(loaded);
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} is of another build of Pacecar: install it and what loads it from "
                            "the same one",
                            path));
  }
  return module;
}

}  // namespace pacecar
