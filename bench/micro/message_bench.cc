// Costs of the message layer's queues: one message from posting to completion on both sides, the
// table between them copied as a NIC would write it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <memory>

#include "transport/message/receive_queue.h"
#include "transport/message/send_queue.h"

namespace pacecar {
namespace {

// Receives of `group` buffers, whose sends come in the opposite order, so that every tag must be
// searched for.
void matching(benchmark::State& state) {
  const auto group = static_cast<uint32_t>(state.range(0));
  SendQueue sender;
  ReceiveQueue receiver;
  const auto send_table = std::make_unique<SendTable>();
  const auto receive_table = std::make_unique<ReceiveTable>();
  std::array<uint8_t, 64> buffer{};
  MessageRequest receive;
  std::array<MessageRequest, kMaxGroup> sends;
  ReceiveOperation operation{.count = group, .request = &receive};
  for (uint32_t i = 0; i < group; ++i) {
    operation.buffers[i] = {buffer.data(), buffer.size(), static_cast<int32_t>(i), 1};
  }
  for (auto _ : state) {
    receiver.post(operation);
    for (auto run = receiver.next_run(); run.count > 0; run = receiver.next_run()) {
      receiver.write(run, 1, *receive_table);
      std::copy_n(&receive_table->slots[run.first], run.count, &send_table->slots[run.first]);
      receiver.on_run_posted(run.count);
    }
    for (uint32_t i = group; i-- > 0;) {
      sender.post({buffer.data(), buffer.size(), static_cast<int32_t>(i), 1, &sends[i]});
    }
    sender.match(*send_table, 1 << 20, [](uint64_t grant) { benchmark::DoNotOptimize(grant); });
    WorkRequest write;
    while (sender.next_write(0, &write)) {
      sender.on_posted();
      ReceiveQueue::Progress progress;
      receiver.on_write(Immediate::unpack(write.immediate), write.length, &progress);
      sender.on_write_done(static_cast<uint32_t>(write.id), CompletionStatus::kOk);
    }
    if (receive.state() != MessageRequest::State::kDone) {
      state.SkipWithError("a receive did not complete");
      break;
    }
  }
  state.SetItemsProcessed(state.iterations() * group);
}
BENCHMARK(matching)->ArgName("group")->Arg(1)->Arg(8);

// The cost per poll of a sender with sends but no buffer.
void waiting_for_a_buffer(benchmark::State& state) {
  SendQueue sender;
  const auto table = std::make_unique<SendTable>();
  MessageRequest request;
  sender.post({nullptr, 0, 0, 0, &request});
  for (auto _ : state) {
    benchmark::DoNotOptimize(sender.match(*table, 1 << 20, [](uint64_t) {}));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(waiting_for_a_buffer);

}  // namespace
}  // namespace pacecar
