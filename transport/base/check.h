// Assertions for our own invariants. They stay on in release builds: a broken invariant must stop
// the process before it corrupts a peer's memory. Never use them on bytes of a peer, on the
// environment or on the state of a device: those are data, and cause errors.
#pragma once

namespace pacecar {

// Prints the failed condition with its place on stderr, and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace pacecar

#define PACECAR_CHECK(condition)                     \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::pacecar::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define PACECAR_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define PACECAR_DCHECK(condition) PACECAR_CHECK(condition)
#endif
