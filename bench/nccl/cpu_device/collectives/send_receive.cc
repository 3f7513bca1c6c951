#include <cstring>

#include "bench/nccl/cpu_device/collectives/algorithms.h"
#include "bench/nccl/cpu_device/collectives/transfers.h"

namespace pacecar::nccl::cpu {
namespace {

constexpr int kConnection = 1;  // send and receive have their own

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// One direction. A transfer of no bytes makes a step, too.
Task stream(const Block& block, SendReceiveWork::Direction direction, Range range, bool sends) {
  const std::span<const int> peer(&direction.peer, 1);
  const bool registered = direction.net_registered;
  const Ends ends{sends ? std::span<const int>{} : peer, sends ? peer : std::span<const int>{},
                  kConnection, registered};
  const Arithmetic bytes(Reduction::kSum, Type::kUint8, 0, false);
  Transfers transfers(block, direction.ll ? Protocol::kLl : Protocol::kSimple, {}, bytes, ends,
                      registered ? kMostNetBytes : block.p2p_step_bytes());
  if (registered) direction.chunk = kMostNetBytes;
  size_t begin = range.begin;
  do {
    const size_t count = std::min(direction.chunk, range.end - begin);
    char* const place = direction.address + begin;
    co_await transfers.run({.receives = !sends,
                            .sends = sends,
                            .input = sends ? place : nullptr,
                            .output = sends ? nullptr : place,
                            .place = sends ? nullptr : place,
                            .elements = count});
    begin += count;
  } while (begin < range.end);
  if (registered && sends) co_await transfers.leave_buffers();
}

}  // namespace

Task send_receive(const Block& block, const std::vector<SendReceiveWork>& works) {
  std::vector<Fiber> streams;
  for (const SendReceiveWork& work : works) {
    const auto send = work.send();
    const auto receive = work.receive();
    Range sent;
    Range received;
    const bool has_send = work.part(send, block.channel_number(), sent.begin, sent.end);
    const bool has_receive =
        work.part(receive, block.channel_number(), received.begin, received.end);
    if (send.peer == block.rank()) {
      if (has_send && sent.end > sent.begin) {
        std::memmove(receive.address + sent.begin, send.address + sent.begin,
                     sent.end - sent.begin);
      }
      continue;
    }
    if (work.peer_registered()) not_played("peer access between GPUs", "NCCL_P2P_DISABLE=1");
    if (has_send) streams.emplace_back(stream(block, send, sent, true));
    if (has_receive) streams.emplace_back(stream(block, receive, received, false));
  }
  while (!advance_all(streams)) co_await block.wait();
}

}  // namespace pacecar::nccl::cpu
