// One rank of a ring for doctor_test.py: `doctor_rank eager|late`. It prints its handle for the
// previous rank, reads the next rank's handle from stdin, sends one message to the next rank and
// receives one from the previous; the late rank only after another line of stdin.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "transport/api/pacecar.hpp"

namespace pacecar {
namespace {

constexpr size_t kBytes = 1U << 20;

template <typename T>
T value_of(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "doctor_rank: {}\n", result.error().message);
  std::exit(1);
}

std::string read_line() {
  std::string line;
  if (!std::getline(std::cin, line)) std::exit(1);  // the test has ended
  return line;
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

std::string hex(const Handle& handle) {
  std::string text;
  for (const uint8_t byte : handle.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Handle handle_of(const std::string& text) {
  Handle handle;
  for (size_t i = 0; i < Handle::kBytes; ++i) {
    handle.bytes[i] = static_cast<uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

// Waits until stdin is readable, at most 5 ms; false: it is not.
bool wait_for_input() {
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  return poll(&waiting, 1, 5) > 0;
}

int run(bool late) {
  const auto context = value_of(Context::open({}));
  const auto listener = value_of(context->listen(0));
  say(hex(listener->handle()));
  const auto connecting = value_of(context->connect(0, handle_of(read_line())));
  std::unique_ptr<SendConnection> next;
  std::unique_ptr<ReceiveConnection> previous;
  while (next == nullptr || previous == nullptr) {
    if (next == nullptr) next = value_of(connecting->poll());
    if (previous == nullptr) previous = value_of(listener->accept());
  }
  std::vector<uint8_t> from(kBytes, 1), to(kBytes, 0);
  const Memory* const from_memory = value_of(context->register_memory(0, from.data(), kBytes));
  const Memory* const to_memory = value_of(context->register_memory(0, to.data(), kBytes));
  say("connected");
  if (late) read_line();
  const ReceiveBuffer buffer{to.data(), kBytes, 0, to_memory};
  Request* receive = value_of(previous->irecv({&buffer, 1}));
  Request* send = value_of(next->isend(from.data(), kBytes, 0, from_memory));
  while (receive != nullptr || send != nullptr) {
    if (receive != nullptr && value_of(previous->test(receive)).done) receive = nullptr;
    if (send != nullptr && value_of(next->test(send)).done) send = nullptr;
    if (wait_for_input() && std::cin.peek() == EOF) return 1;
  }
  say(from == to ? "passed on" : "damaged");
  read_line();  // the doctor looks at this process until then
  return 0;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) { return pacecar::run(argc > 1 && argv[1] == std::string("late")); }
