// Every call of pacecar.hpp that needs no GPU, both ends in this process, over the software NIC on
// the loopback interface. The examples in the header's comments are copied from here. One thread.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <pacecar/pacecar.hpp>
#include <string>
#include <type_traits>
#include <vector>

using namespace pacecar;

namespace {

constexpr size_t kBytes = 1 << 20;

// An error ends the program with its sentence.
template <typename T>
T must(Result<T> result) {
  if constexpr (std::is_void_v<T>) {
    if (result) return;
  } else {
    if (result) return std::move(*result);
  }
  std::fprintf(stderr, "tour: %s\n", result.error().message.c_str());
  std::exit(1);
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tour: %s\n", what);
  std::exit(1);
}

struct Pair {
  std::unique_ptr<SendConnection> sender;
  std::unique_ptr<ReceiveConnection> receiver;
};

// Two processes would make the same calls: one listens, the other connects to its handle.
Pair join(Context& context, size_t nic, const ConnectOptions& options) {
  const auto listener = must(context.listen(nic));
  const auto connecting = must(context.connect(nic, listener->handle(), options));
  Pair pair;
  while (!pair.sender || !pair.receiver) {
    if (!pair.sender) pair.sender = must(connecting->poll());
    if (!pair.receiver) pair.receiver = must(listener->accept());
  }
  return pair;
}

// Waits until both ends are done; returns the sizes that arrived.
TestResult finish(Pair& pair, Request* send, Request* receive) {
  SendConnection* sender = pair.sender.get();
  ReceiveConnection* receiver = pair.receiver.get();
  while (!sender->test(send)->done) {
  }
  TestResult received;
  while (!(received = must(receiver->test(receive))).done) {
  }
  return received;
}

// The memory of a message is registered with the NIC of its end.
Request* receive_into(Pair& pair, char* data, const Memory* memory) {
  ReceiveConnection* receiver = pair.receiver.get();
  const ReceiveBuffer buffer{data, 4096, 7, memory};
  Request* request = *receiver->irecv({&buffer, 1});
  return request;
}

void message(Context* context, char* from, char* into) {
  Pair pair = join(*context, 0, {});
  SendConnection* sender = pair.sender.get();
  Request* receive =
      receive_into(pair, into, must(context->register_memory(pair.receiver->nic(), into, kBytes)));
  char* data = from;
  size_t size = kBytes;
  const Memory* memory = *context->register_memory(0, data, size);
  {
    Request* request = *sender->isend(data, 4096, 7, memory);
    sender->send_now();
    check(finish(pair, request, receive).sizes[0] == 4096, "not all of the message arrived");
  }
  Request* request = must(sender->isend(data, 4096, 7, memory));
  const TestResult result = *sender->test(request);
  check(!result.done, "a message without a receive is done");
  check(std::equal(into, into + 4096, from), "it is another message");
  std::printf("4096 bytes from %s, limited by %s\n", pair.receiver->peer().c_str(),
              std::string(sender->flow().limited_by).c_str());
}

void put(Context& context, std::vector<char>& from, std::vector<char>& into) {
  Pair pair = join(context, 0, {.puts = true});
  SendConnection* sender = pair.sender.get();
  const Memory* memory = must(context.register_memory(sender->nic(), from.data(), kBytes));
  const Memory* target = must(context.register_memory(pair.receiver->nic(), into.data(), kBytes));
  const Window window = must(window_of(*target));
  std::array<char, 8> signal{};
  const Memory* small = must(context.register_memory(0, signal.data(), signal.size()));
  const ReceiveBuffer buffer{signal.data(), signal.size(), 0, small};
  Request* receive = must(pair.receiver->irecv({&buffer, 1}));
  const char* data = from.data();
  Request* request = *sender->iput(data, 4096, memory, window, 65536);
  Request* after = must(sender->isend(data, 8, 0, memory));
  finish(pair, after, receive);
  check(std::equal(from.begin(), from.begin() + 4096, into.begin() + 65536),
        "the put is not in place before the message behind it");
  while (!settled(*request)) context.progress(sender->nic());
  check(must(sender->test(request)).done, "a put that is settled is not done");
  const auto flush = must(context.start_flush(0, target, into.data()));
  check(!flush.has_value(), "memory of the host needs a flush");
  must(context.deregister_memory(0, small));
}

}  // namespace

int main() {
  auto context = *Context::open({.settings = {{"PACECAR_NICS", "soft:udp:lo"}}});
  std::printf("%s\n", context->banner().c_str());
  context->expect(7);
  if (context->nics().size() > 1) {
    const size_t both = *context->bond(std::array<size_t, 2>{0, 1});
    check(context->nics()[both].ports == 2, "a bond of two NICs has other ports");
  }
  std::vector<char> from(kBytes, 'a'), into(kBytes, 'b');
  message(context.get(), from.data(), into.data());
  put(*context, from, into);
  std::printf("%llu messages of Pacecar %d.%d.%d\n",
              static_cast<unsigned long long>(context->statistics(0).messages_sent),
              PACECAR_VERSION_MAJOR, PACECAR_VERSION_MINOR, PACECAR_VERSION_PATCH);
}
