// librecord_host.so: what a host adds to the times of a network, recorded in the ranks themselves.
// It is preloaded (LD_PRELOAD), and sees the system calls of Pacecar's UDP sockets:
//   wake_us           from the kernel's arrival of a packet until the call that takes it, where the
//                     call before it found nothing
//   turn_interval_us  between two receiving calls on a socket
//   pause_us          between two calls of a thread that did not wait, and was not run meanwhile
//   timer_late_us     end of a wait without events, after its timeout
//   burst_bytes       of a call that sends
//   send_us, receive_us  of a call, per packet
// Each process writes samples, counts and sums to $PACECAR_RECORD/PID.json when it ends. One thread
// at a time per socket; records of threads are joined at the end.
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
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr double kLongGapUs = 200;  // an interval beyond is a pause, if the thread was not run
constexpr size_t kMostSamples = 1 << 20;
constexpr size_t kWritten = 20'000;  // samples of each kind

enum Kind : size_t { kWake, kTurnInterval, kPause, kTimerLate, kBurst, kSend, kReceive, kKinds };
constexpr std::array<const char*, kKinds> kNames = {
    "wake_us", "turn_interval_us", "pause_us",  "timer_late_us",
    "burst_bytes", "send_us",      "receive_us"};

double us(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}
double now_us() { return us(CLOCK_MONOTONIC); }

// Samples of all threads, under a lock that is hardly ever contended: one thread drives a NIC.
class Record {
 public:
  void add(Kind kind, double value) {
    const std::lock_guard lock(mutex_);
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
  double work_us_ = 0;  // of threads between two calls without a wait
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
constexpr int kMostSockets = 4096;
std::array<Socket, kMostSockets> sockets;

long involuntary_switches() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

// A call begins.
void begin(double now) {
  if (thread.last_us == 0) return;
  const double gap = now - thread.last_us;
  record().add_work(gap);
  if (gap < kLongGapUs) return;
  const long switches = involuntary_switches();
  if (switches != std::exchange(thread.switches, switches)) record().add(kPause, gap);
}

double arrival_us(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    const auto* const time = reinterpret_cast<const timespec*>(CMSG_DATA(c));
    return static_cast<double>(time->tv_sec) * 1e6 + static_cast<double>(time->tv_nsec) * 1e-3;
  }
  return 0;
}

// Packets of a message that the kernel cuts, or has joined.
double packets_in(const msghdr& message, double bytes) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_UDP || (c->cmsg_type != UDP_SEGMENT && c->cmsg_type != UDP_GRO)) {
      continue;
    }
    const uint16_t size = *reinterpret_cast<const uint16_t*>(CMSG_DATA(c));
    if (size > 0) return bytes / size;
  }
  return 1;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// A call on `fd` that took `count` messages, or none, from `from` to now.
void received(int fd, const msghdr* first, double packets, double from) {
  const double now = now_us();
  thread.last_us = now;
  if (fd < 0 || fd >= kMostSockets) return;
  Socket& socket = sockets[static_cast<size_t>(fd)];
  if (socket.received_us > 0) record().add(kTurnInterval, from - socket.received_us);
  socket.received_us = from;
  const bool was_empty = std::exchange(socket.empty, first == nullptr);
  if (first == nullptr) return;
  record().add(kReceive, (now - from) / packets);
  const double arrived = arrival_us(*first);
  if (was_empty && arrived > 0) record().add(kWake, us(CLOCK_REALTIME) - arrived);
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = real<decltype(recvmsg)>("recvmsg");
  const double from = now_us();
  begin(from);
  const ssize_t size = next(fd, message, flags);
  const bool some = size >= 0 && (flags & MSG_DONTWAIT) != 0;
  received(fd, some ? message : nullptr,
           some ? packets_in(*message, static_cast<double>(size)) : 1, from);
  return size;
}

[[gnu::visibility("default")]] int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags,
                                            timespec* timeout) {
  static auto* const next = real<decltype(recvmmsg)>("recvmmsg");
  const double from = now_us();
  begin(from);
  const int taken = next(fd, messages, count, flags, timeout);
  double packets = 0;
  for (int i = 0; i < taken; ++i) packets += packets_in(messages[i].msg_hdr, messages[i].msg_len);
  received(fd, taken > 0 ? &messages[0].msg_hdr : nullptr, packets, from);
  return taken;
}

[[gnu::visibility("default")]] int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  static auto* const next = real<decltype(sendmmsg)>("sendmmsg");
  const double from = now_us();
  begin(from);
  const int sent = next(fd, messages, count, flags);
  const double now = thread.last_us = now_us();
  double packets = 0;
  double bytes = 0;
  for (int i = 0; i < sent; ++i) {
    packets += packets_in(messages[i].msg_hdr, messages[i].msg_len);
    bytes += messages[i].msg_len;
  }
  if (sent <= 0) return sent;
  record().add(kSend, (now - from) / packets);
  record().add(kBurst, bytes);
  return sent;
}

[[gnu::visibility("default")]] int ppoll(pollfd* fds, nfds_t count, const timespec* timeout,
                                         const sigset_t* mask) {
  static auto* const next = real<decltype(ppoll)>("ppoll");
  const double from = now_us();
  begin(from);
  const int ready = next(fds, count, timeout, mask);
  if (ready == 0 && timeout != nullptr) {
    const double wanted = static_cast<double>(timeout->tv_sec) * 1e6 +
                          static_cast<double>(timeout->tv_nsec) * 1e-3;
    if (wanted > 0) record().add(kTimerLate, now_us() - from - wanted);
  }
  thread.last_us = 0;
  return ready;
}

}  // extern "C"
