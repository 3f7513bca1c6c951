// What the environment says about the GPUs that this process plays.
#pragma once

namespace pacecar::nccl::cpu {

struct Settings {
  int devices = 1;    // CPU_GPU_COUNT: GPUs of this process, 1 to 64
  int first_bus = 1;  // CPU_GPU_BUS: PCI bus of the first; ranks of one host need different ones
  bool trap = false;  // CPU_GPU_TRAP=1: the processor may not touch GPU memory (memory.h)
  bool log = false;   // CPU_GPU_LOG=1: kernels, and calls that are not there, on stderr
  // CPU_GPU_SPIN=1: waiting threads of NCCL only yield, as on a GPU's host. To measure: where
  // all processors spin, Linux lets other threads wait for seconds.
  bool spins = false;
};

const Settings& settings();

}  // namespace pacecar::nccl::cpu
