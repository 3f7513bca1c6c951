#include "bench/modules/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "transport/base/module_path.h"

namespace pacecar {

int run_in_module(const char* module, int argc, char** argv) {
  const std::string file = fmt::format("libpacecar-{}.so", module);
  void* const loaded = dlopen(module_path(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const run = loaded == nullptr ? nullptr : dlsym(loaded, "pacecar_run_subcommand");
  if (run == nullptr) {
    cli::Console(false, true)
        .error(fmt::format("'pacecar {}' needs {} ({}): build it (cmake --build build/release "
                           "--target {}_module), or install the whole package",
                           argv[0], file, dlerror(), module));
    return cli::kExitFailed;
  }
  return reinterpret_cast<decltype(&pacecar_run_subcommand)>(run)(argc, argv);
}

}  // namespace pacecar
