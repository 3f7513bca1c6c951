#include "transport/io/dpdk/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <string_view>

namespace pacecar {
namespace {

namespace fs = std::filesystem;

// The folder of the program or library that has this code, links followed; empty: not known.
fs::path own_folder() {
  static const char here = 0;
  Dl_info info{};
  link_map* object = nullptr;
  if (dladdr1(&here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  const bool program = object->l_name[0] == '\0';
  std::error_code missing;
  return fs::canonical(program ? "/proc/self/exe" : object->l_name, missing).parent_path();
}

// The module where it is installed, else its name alone.
std::string find_file(const std::string& file) {
  const fs::path own = own_folder();
  for (const fs::path& folder :
       {own / "pacecar", own / "../pacecar", own / PACECAR_MODULES_FROM_PROGRAMS,
        own / PACECAR_PACKAGED_MODULES_FROM_PROGRAMS}) {
    std::error_code missing;
    if (!own.empty() && fs::exists(folder / file, missing)) return folder / file;
  }
  return file;
}

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
  const std::string path = find_file(file);
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
