#include "bench/plan/schedule.h"

#include <vector>

namespace pacecar::plan {

double run_schedule(std::span<const StageTime> stages, uint32_t micro_batches) {
  const auto count = static_cast<uint32_t>(stages.size());
  using Ends = std::vector<std::vector<double>>;  // by stage and micro-batch
  Ends forward(count, std::vector<double>(micro_batches));
  Ends backward = forward;
  // In round r a stage that is the n-th from the end runs backward pass r - n, then forward pass r.
  // So each pass comes after those that it waits for.
  for (uint32_t round = 0; round < micro_batches + count; ++round) {
    for (uint32_t s = 0; s < count; ++s) {
      const StageTime& time = stages[s];
      const uint32_t ahead = in_flight(s, count, micro_batches);
      const uint32_t m = round - (count - s);
      if (round >= count - s && m < micro_batches) {
        const bool more = m + ahead < micro_batches + 1;
        const double free_s = more ? forward[s][m + ahead - 1] : backward[s][m - 1];
        const double input_s = s + 1 < count ? backward[s + 1][m] + time.send_s : 0;
        backward[s][m] = std::max(free_s, input_s) + time.backward_s;
      }
      if (round >= micro_batches) continue;
      const double free_s = round >= ahead ? backward[s][round - ahead]
                            : round > 0    ? forward[s][round - 1]
                                           : 0;
      const double input_s = s > 0 ? forward[s - 1][round] + stages[s - 1].send_s : 0;
      forward[s][round] = std::max(free_s, input_s) + time.forward_s;
    }
  }
  double step_s = 0;
  for (uint32_t s = 0; s < count; ++s) {
    step_s = std::max(step_s, backward[s].back() + stages[s].tail_s);
  }
  return step_s;
}

}  // namespace pacecar::plan
