#include "transport/base/module_path.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

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

}  // namespace

std::string module_path(const std::string& file) {
  const fs::path own = own_folder();
  for (const fs::path& folder :
       {own / "pacecar", own / "../pacecar", own / PACECAR_MODULES_FROM_PROGRAMS,
        own / PACECAR_PACKAGED_MODULES_FROM_PROGRAMS}) {
    std::error_code missing;
    if (!own.empty() && fs::exists(folder / file, missing)) return folder / file;
  }
  return file;
}

}  // namespace pacecar
