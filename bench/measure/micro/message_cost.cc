// message_cost MESSAGES BYTES: two contexts of this process send each other MESSAGES messages of
// BYTES bytes in turn, over UDP sockets and the loopback interface, with the defaults. For
// instruction_counts.py, which counts one of the functions below: instructions in user space. One
// thread calls both ends, so a message lies in the receiver's socket before it is tested.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/cli/must.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {
namespace {

// One of the two ends.
struct End {
  std::unique_ptr<Context> context;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<SendConnection> sender;
  std::unique_ptr<ReceiveConnection> receiver;
  std::vector<uint8_t> bytes;
  const Memory* memory = nullptr;
  Request* send = nullptr;
  Request* receive = nullptr;

  explicit End(size_t size)
      : context(must(Context::open({.settings = {{"PACECAR_NICS", "soft:udp:lo"}}}))),
        listener(must(context->listen(0))),
        bytes(size),
        memory(must(context->register_memory(0, bytes.data(), bytes.size()))) {}
  End(const End&) = delete;
  ~End() {
    sender.reset();
    receiver.reset();
    must(context->deregister_memory(0, memory));
  }
};

void connect(End& from, End& to) {
  const auto connecting = must(from.context->connect(0, to.listener->handle()));
  while (!from.sender || !to.receiver) {
    if (!from.sender) from.sender = must(connecting->poll());
    if (!to.receiver) to.receiver = must(to.listener->accept());
  }
}

// instruction_counts.py counts the instructions of one of the next functions, or of `exchange`.
[[gnu::noinline]] void post_receive(End& end) {
  const ReceiveBuffer buffer{end.bytes.data(), end.bytes.size(), 0, end.memory};
  end.receive = must(end.receiver->irecv({&buffer, 1}));
}
[[gnu::noinline]] void post_send(End& end) {
  end.send = must(end.sender->isend(end.bytes.data(), end.bytes.size(), 0, end.memory));
}
[[gnu::noinline]] bool test_receive(End& end) { return must(end.receiver->test(end.receive)).done; }
[[gnu::noinline]] bool test_send(End& end) { return must(end.sender->test(end.send)).done; }
// What a thread does while it waits for the peer: the rest of the turn.
[[gnu::noinline]] void wait(End& end) { end.context->progress(0); }

// One message, and all work that it leaves.
[[gnu::noinline]] void exchange(End& from, End& to) {
  post_receive(to);
  wait(to);
  post_send(from);
  wait(from);
  bool sent = false;
  bool received = false;
  while (!sent || !received) {
    if (!received) received = test_receive(to);
    if (!sent) sent = test_send(from);
  }
  wait(to);
  wait(from);
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  using pacecar::End;
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MESSAGES BYTES\n", argv[0]);
    return 2;
  }
  const auto messages = std::strtoull(argv[1], nullptr, 10);
  const auto bytes = std::strtoull(argv[2], nullptr, 10);
  End one(bytes);
  End other(bytes);
  pacecar::connect(one, other);
  pacecar::connect(other, one);
  for (uint64_t i = 0; i < messages; i += 2) {
    pacecar::exchange(one, other);
    pacecar::exchange(other, one);
  }
}
