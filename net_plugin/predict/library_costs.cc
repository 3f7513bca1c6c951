#include "net_plugin/predict/library_costs.h"

namespace pacecar::predict {

LibraryCosts nccl_costs() {
  LibraryCosts costs;
  // Simple has buffers of 4 MiB in 8 slots and forwards half a slot at a time; its steps wait for a
  // fence and the proxy. LL and LL128 have buffers of 256 KiB and about 4.7 MiB, and flags in the
  // data instead of fences.
  costs.protocols[static_cast<size_t>(Protocol::kSimple)] = {.launch_s = 6e-6,
                                                             .step_s = 4e-6,
                                                             .local_step_s = 1.5e-6,
                                                             .chunk = 512 * 1024,
                                                             .slots = 8,
                                                             .slices = 2};
  costs.protocols[static_cast<size_t>(Protocol::kLl)] = {.launch_s = 5e-6,
                                                         .step_s = 0.7e-6,
                                                         .local_step_s = 0.1e-6,
                                                         .payload = 0.5,
                                                         .chunk = 16 * 1024,
                                                         .slots = 8};
  costs.protocols[static_cast<size_t>(Protocol::kLl128)] = {.launch_s = 5e-6,
                                                            .step_s = 1.5e-6,
                                                            .local_step_s = 0.5e-6,
                                                            .payload = 120.0 / 128,
                                                            .rate_share = 0.92,
                                                            .chunk = 300 * 1024,
                                                            .slots = 8};
  return costs;
}

LibraryCosts message_costs() { return {.near_trees = false}; }

}  // namespace pacecar::predict
