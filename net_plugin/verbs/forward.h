// The real libibverbs, for devices that are not ours: found behind this library in the program, or
// by its path where this library goes by its name.
#pragma once

// Of each function that the library shows.
#define PACECAR_VERBS __attribute__((visibility("default")))

namespace pacecar::ibverbs {

bool have_real();
// Not where this library goes by its name: drivers would find ours in place of it.
bool real_has_devices();
// Ends the process where there is none: nobody holds an object of a device that is not ours then.
void* real_function(const char* name, const char* version);

}  // namespace pacecar::ibverbs

// The real function of this name, looked up once.
#define CALL_REAL(name, version)                                                                \
  ([]() -> decltype(&::name) {                                                                  \
    static const auto function =                                                                \
        reinterpret_cast<decltype(&::name)>(::pacecar::ibverbs::real_function(#name, version)); \
    return function;                                                                            \
  }())
