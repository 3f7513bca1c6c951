// Calls to the real libibverbs, for devices that are not ours: the next one in the search order of
// the program or, if our library has its name, found by its path. Thread rule: any thread.
#pragma once

// Marks each function that the library exports.
#define PACECAR_VERBS __attribute__((visibility("default")))

namespace pacecar::ibverbs {

bool have_real();
// False if this library has the name of libibverbs: the drivers of real devices would load it in
// place of libibverbs.
bool real_has_devices();
// The newest version of the function, as exports.map has it. Ends the process if the real library
// is missing: then no objects of other devices exist.
void* real_function(const char* name);

}  // namespace pacecar::ibverbs

// The real function of this name, looked up once.
#define CALL_REAL(name)                                                              \
  ([]() -> decltype(&name) {                                                         \
    static const auto function =                                                     \
        reinterpret_cast<decltype(&name)>(::pacecar::ibverbs::real_function(#name)); \
    return function;                                                                 \
  }())

// Returns from an exported function with the result of the real one if `object`, its first
// argument, is not ours, and without a result if it belongs to the process that forked this one.
#define FORWARD_UNLESS_OURS(name, object, ...)                                        \
  if (!ours(object)) return CALL_REAL(name)(object __VA_OPT__(, ) __VA_ARGS__);       \
  if (inherited(object)) {                                                            \
    return result_in_child<decltype(name(object __VA_OPT__(, ) __VA_ARGS__))>(#name); \
  }
