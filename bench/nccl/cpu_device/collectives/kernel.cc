#include "bench/nccl/cpu_device/collectives/kernel.h"

#include <bit>
#include <cstdio>
#include <ctime>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "bench/nccl/cpu_device/collectives/work.h"

namespace pacecar::nccl::cpu {
namespace {

// The channel of a block: the number of the block-th set bit of `mask`, counted from 0.
int channel_of(uint64_t mask, size_t block) {
  for (size_t i = 0; i < block; ++i) mask &= mask - 1;
  return std::countr_zero(mask);
}

size_t work_bytes(const Layout& layout, Batch::Kind kind) {
  switch (kind) {
    case Batch::Kind::kCollective: return layout.collective.bytes;
    case Batch::Kind::kRegisteredCollective: return layout.collective.registered_bytes;
    case Batch::Kind::kSendReceive: return SendReceiveWork::kBytes;
    case Batch::Kind::kBroadcasts: break;
  }
  return BroadcastWork::kBytes;
}

// Works of one function, from a batch and the batches that extend it.
struct Run {
  Batch::Kind kind = Batch::Kind::kCollective;
  uint32_t function = 0;
  std::vector<const char*> works;
  uint32_t consumed = 0;  // offset behind the last work, for a FIFO
};

// Reads the run that begins at batch `index`, and sets `index` to the last batch of the run.
Run read_run(const Layout& layout, const Arguments& arguments, size_t& index, uint32_t& next_jump) {
  Run run;
  for (;;) {
    const Batch batch(arguments, index);
    run.kind = batch.kind;
    run.function = batch.function;
    const auto bytes = static_cast<uint32_t>(work_bytes(layout, batch.kind));
    for (uint64_t left = batch.works; left != 0; left &= left - 1) {
      const auto number = static_cast<uint32_t>(std::countr_zero(left));
      run.works.push_back(arguments.work_at(batch.offset + number * bytes));
      run.consumed = batch.offset + (number + 1) * bytes;
    }
    next_jump = batch.next_jump;
    if (!batch.extended_by_next) return run;
    index += batch.next_jump;
  }
}

// Notes when works that NCCL's profiler asked for begin, or end: ncclDevProfiler, 64 records of a
// channel, each a number and a time.
class WorkTimes {
 public:
  WorkTimes(const Block& block, size_t which) : block_(block), which_(which) {}

  void note(uint64_t number) const {
    constexpr size_t kRecords = 64;
    constexpr size_t kRecordBytes = 16;
    char* const records = pointer(block_.communicator(), which_);
    char* const record =
        records + (static_cast<size_t>(block_.channel_number()) * kRecords + number % kRecords) *
                      kRecordBytes;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    set_field(
        record, 8,
        static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec));
    store_release(reinterpret_cast<uint64_t*>(record), number);
  }

 private:
  const Block& block_;
  size_t which_;
};

// Broadcasts are counted, as NCCL's kernels do, and are not profiled: the bit is one of from_root.
void note_times(const Block& block, const Run& run, bool begins) {
  const Layout& layout = block.layout();
  if (layout.channel.work_counter == kAbsent) return;
  const auto before = field<uint64_t>(block.channel(), layout.channel.work_counter);
  const WorkTimes times(block, begins ? layout.comm.work_started : layout.comm.work_completed);
  for (size_t i = 0; i < run.works.size(); ++i) {
    const bool profiled = run.kind == Batch::Kind::kSendReceive
                              ? SendReceiveWork(layout, run.works[i]).profiled()
                              : CollectiveWork(layout, run.works[i]).profiled();
    if (profiled) times.note(before + 1 + i);
  }
  if (!begins) {
    set_field(block.channel(), layout.channel.work_counter, before + run.works.size());
  }
}

// With the FIFO of older versions, reports up to where NCCL may overwrite it.
void note_consumed(const Block& block, const Run& run) {
  if (block.layout().comm.work_consumed == kAbsent) return;
  auto* const consumed = pointer<uint32_t>(block.communicator(), block.layout().comm.work_consumed);
  store_release(consumed + block.channel_number(), run.consumed);
}

}  // namespace

void not_played(const char* what, const char* cure) {
  std::fprintf(stderr, "cpu_device: NCCL asks for %s, which the CPU device does not have: set %s\n",
               what, cure);
  std::_Exit(1);
}

Kernel::Kernel(const Library& library, const char* arguments, size_t bytes, size_t blocks)
    : arguments_(arguments, arguments + bytes) {
  blocks_.reserve(blocks);
  for (size_t i = 0; i < blocks; ++i) blocks_.emplace_back(run(library, i));
}

Task Kernel::run(const Library& library, size_t number) const {
  const Arguments arguments(arguments_.data());
  const Block block(library.layout, arguments.communicator,
                    channel_of(arguments.channel_mask, number));
  try {
    uint32_t jump = 0;
    for (size_t index = number;; index += jump) {
      const Run run = read_run(library.layout, arguments, index, jump);
      const Function& function = library.functions.at(run.function);
      note_times(block, run, true);
      if (run.kind == Batch::Kind::kSendReceive) {
        std::vector<SendReceiveWork> works;
        for (const char* work : run.works) works.emplace_back(library.layout, work);
        co_await send_receive(block, works);
      } else if (run.kind == Batch::Kind::kBroadcasts) {
        const std::vector<BroadcastWork> works(run.works.begin(), run.works.end());
        co_await broadcasts(block, function.protocol, works);
      } else {
        for (const char* work : run.works) {
          const CollectiveWork one(library.layout, work);
          co_await collective(block, function, one);
        }
      }
      note_times(block, run, false);
      if (arguments.storage == Arguments::Storage::kFifo) note_consumed(block, run);
      if (jump == 0) break;
    }
  } catch (const Aborted&) {
    // ncclCommAbort frees everything; the kernel only has to end.
  }
}

}  // namespace pacecar::nccl::cpu
