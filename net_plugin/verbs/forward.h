// The real libibverbs, for devices that are not ours: the next in the program's search order, or by
// its path if this library has its name.
#pragma once

// For each function that the library exports.
#define PACECAR_VERBS __attribute__((visibility("default")))

namespace pacecar::ibverbs {

bool have_real();
// False if this library has its name: drivers would load ours instead.
bool real_has_devices();
// Ends the process if there is none: then no objects of other devices exist.
void* real_function(const char* name, const char* version);

}  // namespace pacecar::ibverbs

// The real function of this name, looked up once.
#define CALL_REAL(name, version)                                                                \
  ([]() -> decltype(&::name) {                                                                  \
    static const auto function =                                                                \
        reinterpret_cast<decltype(&::name)>(::pacecar::ibverbs::real_function(#name, version)); \
    return function;                                                                            \
  }())
