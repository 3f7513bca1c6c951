#include "transport/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pacecar {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "pacecar: invariant broken at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace pacecar
