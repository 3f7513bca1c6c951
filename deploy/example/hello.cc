// Sends a message from one end of a connection to the other, both in this process. Two hosts do the
// same: one listens and gives its handle to the other, over any channel. One thread.
#include <cstdio>
#include <cstdlib>
#include <pacecar/pacecar.hpp>

template <typename T>
T must(pacecar::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "hello: %s\n", result.error().message.c_str());
  std::exit(1);
}

int main() {
  const auto context = must(pacecar::Context::open({}));  // the NICs of PACECAR_NICS
  const auto listener = must(context->listen(0));
  const auto connecting = must(context->connect(0, listener->handle()));
  std::unique_ptr<pacecar::SendConnection> sender;
  std::unique_ptr<pacecar::ReceiveConnection> receiver;
  while (!sender || !receiver) {  // no call blocks
    if (!sender) sender = must(connecting->poll());
    if (!receiver) receiver = must(listener->accept());
  }
  std::string text = "hello", copy(16, ' ');
  const auto* from = must(context->register_memory(sender->nic(), text.data(), text.size()));
  const auto* into = must(context->register_memory(receiver->nic(), copy.data(), copy.size()));
  const pacecar::ReceiveBuffer buffer{copy.data(), copy.size(), 0, into};
  auto* const receive = must(receiver->irecv({&buffer, 1}));
  auto* const send = must(sender->isend(text.data(), text.size(), 0, from));
  while (!must(sender->test(send)).done) {
  }
  pacecar::TestResult received;
  while (!(received = must(receiver->test(receive))).done) {
  }
  std::printf("%s, over %s\n", copy.substr(0, received.sizes[0]).c_str(),
              context->nics()[receiver->nic()].name.c_str());
}
