#include "bench/plan/schedule.h"

#include <cstddef>

namespace pacecar::plan {
namespace {

// A stage that goes through its passes in their order.
struct Stage {
  uint32_t ahead = 0;  // forward passes before the first backward pass
  uint32_t forwards = 0;
  uint32_t backwards = 0;
  double free_s = 0;
  std::vector<double> forward_end;
  std::vector<double> backward_end;

  bool forward_is_next(uint32_t micro_batches) const {
    return forwards < micro_batches && forwards < ahead + backwards;
  }
};

class Run {
 public:
  Run(std::span<const StageTime> times, uint32_t micro_batches)
      : times_(times), micro_batches_(micro_batches), stages_(times.size()) {
    const auto count = static_cast<uint32_t>(times.size());
    for (uint32_t s = 0; s < count; ++s) {
      stages_[s].ahead = in_flight(s, count, micro_batches);
      stages_[s].forward_end.resize(micro_batches);
      stages_[s].backward_end.resize(micro_batches);
    }
  }

  // Down the pipeline and up again, each stage as far as its inputs go.
  StepTimes run() {
    while (stages_[0].backwards < micro_batches_) {
      for (size_t s = 0; s < stages_.size(); ++s) advance(s);
      for (size_t s = stages_.size(); s-- > 0;) advance(s);
    }
    StepTimes found;
    for (size_t s = 0; s < stages_.size(); ++s) {
      found.last_backward_s.push_back(stages_[s].free_s);
      found.step_s = std::max(found.step_s, stages_[s].free_s + times_[s].tail_s);
    }
    return found;
  }

 private:
  void advance(size_t s) {
    Stage& stage = stages_[s];
    while (stage.backwards < micro_batches_) {
      if (stage.forward_is_next(micro_batches_)) {
        const uint32_t m = stage.forwards;
        if (s > 0 && stages_[s - 1].forwards <= m) return;
        const double input = s > 0 ? stages_[s - 1].forward_end[m] + times_[s - 1].send_s : 0;
        stage.free_s = std::max(stage.free_s, input) + times_[s].forward_s;
        stage.forward_end[m] = stage.free_s;
        ++stage.forwards;
      } else {
        const uint32_t m = stage.backwards;
        const bool last = s + 1 == stages_.size();
        if (!last && stages_[s + 1].backwards <= m) return;
        const double input = last ? 0 : stages_[s + 1].backward_end[m] + times_[s].send_s;
        stage.free_s = std::max(stage.free_s, input) + times_[s].backward_s;
        stage.backward_end[m] = stage.free_s;
        ++stage.backwards;
      }
    }
  }

  std::span<const StageTime> times_;
  uint32_t micro_batches_;
  std::vector<Stage> stages_;
};

}  // namespace

StepTimes run_schedule(std::span<const StageTime> stages, uint32_t micro_batches) {
  return Run(stages, micro_batches).run();
}

}  // namespace pacecar::plan
