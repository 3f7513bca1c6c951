// Modules: shared objects of ours that are loaded when they are needed.
#pragma once

#include <string>

namespace pacecar {

// The path of a module: in the folder `pacecar` next to the program or library with this code, else
// in the installed libraries' folder; else `file`, which dlopen() then searches. Any thread.
std::string module_path(const std::string& file);

}  // namespace pacecar
