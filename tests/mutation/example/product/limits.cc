#include <product/limits.h>

namespace example {

int limited(int value) { return value > kMost ? kMost : value; }

bool is_limited(int value) { return value > kMost && value != 0; }

int never_called(int value) { return value + 1; }

}  // namespace example
