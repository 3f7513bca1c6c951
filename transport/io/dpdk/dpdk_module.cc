// libpacecar-dpdk.so
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/module.h"

PACECAR_DPDK_MODULE(pacecar::open_dpdk);
