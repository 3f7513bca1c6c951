// A module that claims to be of another build.
#include "transport/io/dpdk/module.h"

#define PACECAR_DPDK_BUILD "another build"

static void open() {}

PACECAR_DPDK_MODULE(open);
