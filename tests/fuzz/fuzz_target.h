// FUZZ_TARGET(name) { ... }: runs the target on the input `data` of `size` bytes; the value is 0.
// With libFuzzer each target is a program; else one program has all of them (replay_main.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar::fuzz {

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
  Target* next = nullptr;

  inline static Target* first = nullptr;
  Target(const char* its_name, int (*its_run)(const uint8_t*, size_t))
      : name(its_name), run(its_run), next(first) {
    first = this;
  }
};

}  // namespace pacecar::fuzz

#ifdef PACECAR_LIBFUZZER
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define FUZZ_TARGET(name)                                  \
  static int run_##name(const uint8_t* data, size_t size); \
  static fuzz::Target target_##name(#name, run_##name);    \
  static int run_##name(const uint8_t* data, size_t size)
#endif
