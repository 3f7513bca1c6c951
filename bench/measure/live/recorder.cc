// librecord_host.so, preloaded into ranks of NCCL: what a host adds to the times of a network, by
// the system calls of Pacecar's UDP sockets. $PACECAR_RECORD/PID.json has samples of
//   wake_us           from the kernel's arrival of a packet until the call that takes it, where the
//                     call before it found nothing
//   turn_interval_us  between two receiving calls on a socket
//   pause_us          between two calls of a thread that did not wait, and was not run meanwhile
//   timer_late_us     from the timeout of a wait until its end
//   burst_bytes       of a sending call
//   send_us, receive_us  of a call, per packet
// and work_us: all time of threads between calls without a wait. One thread drives a socket.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr double kLongGapUs = 200;  // an interval beyond is a pause, if the thread was not run
constexpr size_t kMostSamples = 1 << 20;
constexpr size_t kWritten = 20'000;  // samples of each kind

enum Kind : size_t { kWake, kTurnInterval, kPause, kTimerLate, kBurst, kSend, kReceive, kKinds };
constexpr std::array<const char*, kKinds> kNames = {"wake_us",       "turn_interval_us", "pause_us",
                                                    "timer_late_us", "burst_bytes",      "send_us",
                                                    "receive_us"};

double us(const timespec& time) {
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}
double now_us(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time{};
  clock_gettime(clock, &time);
  return us(time);
}

class Record {
 public:
  void add(Kind kind, double value) {
    const std::lock_guard lock(mutex_);  // hardly ever contended
    if (samples_[kind].size() < kMostSamples) samples_[kind].push_back(static_cast<float>(value));
  }
  void add_work(double time) {
    const std::lock_guard lock(mutex_);
    work_us_ += time;
  }

  ~Record() {
    const char* const folder = std::getenv("PACECAR_RECORD");
    if (folder == nullptr || samples_[kReceive].empty()) return;
    const std::string name = std::string(folder) + "/" + std::to_string(getpid()) + ".json";
    std::FILE* const file = std::fopen(name.c_str(), "w");
    if (file == nullptr) return;
    std::fprintf(file, "{\"work_us\": %.0f", work_us_);
    for (size_t kind = 0; kind < kKinds; ++kind) write(file, kNames[kind], samples_[kind]);
    std::fprintf(file, "}\n");
    std::fclose(file);
  }

 private:
  static void write(std::FILE* file, const char* name, const std::vector<float>& samples) {
    std::fprintf(file, ", \"%s\": {\"count\": %zu, \"samples\": [", name, samples.size());
    const size_t step = samples.size() / kWritten + 1;
    for (size_t i = 0; i < samples.size(); i += step) {
      std::fprintf(file, "%s%.2f", i > 0 ? "," : "", static_cast<double>(samples[i]));
    }
    std::fprintf(file, "]}");
  }

  std::mutex mutex_;
  std::array<std::vector<float>, kKinds> samples_;
  double work_us_ = 0;
};

Record& record() {
  static Record all;
  return all;
}

// What a thread did last. A wait ends its work.
struct Thread {
  double last_us = 0;  // the end of its last call; 0: it has waited since
  long switches = 0;   // involuntary context switches
};
thread_local Thread thread;

struct Socket {
  double received_us = 0;  // the last receiving call
  bool empty = false;      // it found nothing
};
std::array<Socket, 4096> sockets;

// A call begins; returns the time.
double begin() {
  const double now = now_us();
  if (thread.last_us == 0) return now;
  const double gap = now - thread.last_us;
  record().add_work(gap);
  if (gap < kLongGapUs) return now;
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  if (used.ru_nivcsw != std::exchange(thread.switches, used.ru_nivcsw)) record().add(kPause, gap);
  return now;
}

template <typename Value>
Value control(const msghdr& message, int level, int type, Value otherwise) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level == level && c->cmsg_type == type) {
      return *reinterpret_cast<const Value*>(CMSG_DATA(c));
    }
  }
  return otherwise;
}

struct Size {
  double packets = 0;
  double bytes = 0;
};

// The size of messages that the kernel cuts into packets, or has joined from packets.
Size size_of(std::span<const mmsghdr> messages, int type) {
  Size size;
  for (const mmsghdr& each : messages) {
    const auto packet = control<uint16_t>(each.msg_hdr, SOL_UDP, type, 0);
    size.packets += packet > 0 ? static_cast<double>(each.msg_len) / packet : 1;
    size.bytes += each.msg_len;
  }
  return size;
}

// A call on `fd` that began at `from` has taken these messages.
void received(int fd, std::span<const mmsghdr> messages, double from) {
  const double now = thread.last_us = now_us();
  if (fd < 0 || static_cast<size_t>(fd) >= sockets.size()) return;
  Socket& socket = sockets[static_cast<size_t>(fd)];
  if (socket.received_us > 0) record().add(kTurnInterval, from - socket.received_us);
  socket.received_us = from;
  const bool was_empty = std::exchange(socket.empty, messages.empty());
  if (messages.empty()) return;
  record().add(kReceive, (now - from) / size_of(messages, UDP_GRO).packets);
  const double arrived =
      us(control<timespec>(messages[0].msg_hdr, SOL_SOCKET, SCM_TIMESTAMPNS, timespec{}));
  if (was_empty && arrived > 0) record().add(kWake, now_us(CLOCK_REALTIME) - arrived);
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = real<decltype(recvmsg)>("recvmsg");
  const double from = begin();
  const ssize_t size = next(fd, message, flags);
  if ((flags & MSG_DONTWAIT) == 0) return size;
  const mmsghdr one{*message, static_cast<unsigned>(size)};
  received(fd, std::span(&one, size >= 0 ? 1 : 0), from);
  return size;
}

int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  static auto* const next = real<decltype(recvmmsg)>("recvmmsg");
  const double from = begin();
  const int taken = next(fd, messages, count, flags, timeout);
  received(fd, std::span(messages, static_cast<size_t>(taken > 0 ? taken : 0)), from);
  return taken;
}

int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  static auto* const next = real<decltype(sendmmsg)>("sendmmsg");
  const double from = begin();
  const int sent = next(fd, messages, count, flags);
  thread.last_us = now_us();
  if (sent <= 0) return sent;
  const Size size = size_of(std::span(messages, static_cast<size_t>(sent)), UDP_SEGMENT);
  record().add(kSend, (thread.last_us - from) / size.packets);
  record().add(kBurst, size.bytes);
  return sent;
}

int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  static auto* const next = real<decltype(ppoll)>("ppoll");
  const double from = begin();
  const int ready = next(fds, count, timeout, mask);
  if (ready == 0 && timeout != nullptr && us(*timeout) > 0) {
    record().add(kTimerLate, now_us() - from - us(*timeout));
  }
  thread.last_us = 0;
  return ready;
}

}  // extern "C"
#pragma GCC visibility pop
