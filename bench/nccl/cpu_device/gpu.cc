#include "bench/nccl/cpu_device/gpu.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "bench/nccl/cpu_device/graph.h"
#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::nccl::cpu {
namespace {

thread_local uint64_t progress = 0;

}  // namespace

void note_progress() { ++progress; }

void Patience::wait() {
  constexpr uint32_t kYields = 200;
  constexpr uint32_t kSleepsOfALength = 16;
  constexpr uint32_t kLengths = 3;
  // A shorter one costs more processor time than it lasts, in virtual machines above all.
  constexpr std::chrono::microseconds kShortestSleep{50};
  ++looks_;
  if (looks_ < kYields) {
    sched_yield();
    return;
  }
  // Without this a sleep takes 50 microseconds more.
  static thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1UL);
  static_cast<void>(exact);
  const uint32_t length = std::min((looks_ - kYields) / kSleepsOfALength, kLengths - 1);
  std::this_thread::sleep_for(kShortestSleep * (1U << length));
}

Gpu& Gpu::get(int number) {
  static std::vector<Gpu*>& gpus = *[] {  // used until the process ends
    auto* const made = new std::vector<Gpu*>;
    for (int i = 0; i < settings().devices; ++i) made->push_back(new Gpu(i));
    return made;
  }();
  return *gpus.at(static_cast<size_t>(number));
}

Gpu::Gpu(int number) : number_(number), default_stream_(create_stream(true)) {
  std::thread([this] { work(); }).detach();
}

Stream& Gpu::create_stream(bool blocking) {
  static std::atomic<uint64_t> last_id{0};
  const std::lock_guard lock(mutex_);
  streams_.emplace_back(new Stream(*this, blocking, ++last_id));
  return *streams_.back();
}

void Gpu::destroy(Stream& stream) {
  const std::lock_guard lock(mutex_);
  stream.destroyed_ = true;
  enqueued_.notify_one();
}

Graph* Stream::graph() const { return Graph::capturing(graph_id_); }

void Gpu::enqueue(Stream& stream, Command command) {
  if (Graph* const graph = stream.graph()) {
    graph->add([command = std::move(command)] { return command; });
    return;
  }
  const std::lock_guard lock(mutex_);
  stream.entries_.push_back({++last_order_, std::move(command)});
  ++stream.unfinished_;
  enqueued_.notify_one();
}

void Gpu::enqueue_made(Stream& stream, CommandMaker make) {
  if (Graph* const graph = stream.graph()) {
    graph->add(std::move(make));
  } else {
    enqueue(stream, make());
  }
}

void Gpu::wait_until_idle(const Stream& stream) const {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] { return stream.entries_.empty(); });
}

void Gpu::wait_until_idle() const {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] { return !any_waiting(); });
}

bool Gpu::any_waiting() const {
  return std::ranges::any_of(streams_, [](const auto& one) { return !one->entries_.empty(); });
}

bool Gpu::may_run(const Stream& stream) const {
  if (stream.entries_.empty()) return false;
  const auto precedes = [&](const Stream& other) {
    return !other.entries_.empty() && other.entries_.front().order < stream.entries_.front().order;
  };
  if (&stream != &default_stream_) return !stream.blocking_ || !precedes(default_stream_);
  return std::ranges::none_of(streams_,
                              [&](const auto& one) { return one->blocking_ && precedes(*one); });
}

void Gpu::collect() {
  std::erase_if(streams_, [](const auto& one) { return one->destroyed_ && one->entries_.empty(); });
}

void Gpu::work() {
  pthread_setname_np(pthread_self(), ("gpu" + std::to_string(number_)).c_str());
  Patience patience;
  std::vector<Stream*> running;
  std::unique_lock lock(mutex_);
  for (;;) {
    collect();
    running.clear();
    for (const auto& one : streams_) {
      if (may_run(*one)) running.push_back(one.get());
    }
    if (running.empty()) {
      enqueued_.wait(lock);
      continue;
    }
    const uint64_t before = progress;
    bool completed = false;
    for (Stream* const stream : running) {
      Command& command = stream->entries_.front().command;  // stays in place while others are added
      lock.unlock();
      const bool done = command();
      lock.lock();
      if (!done) continue;
      const Stream::Entry ended = std::move(stream->entries_.front());
      stream->entries_.pop_front();
      --stream->unfinished_;
      completed = true;
    }
    if (completed) completed_.notify_all();
    if (completed || progress != before) {
      patience.reset();
      continue;
    }
    lock.unlock();
    patience.wait();
    lock.lock();
  }
}

void Event::record(Stream& stream) const {
  const Graph* const graph = stream.graph();
  state_->graph = graph == nullptr ? 0 : graph->id();
  if (graph == nullptr) stream.gpu().enqueue(stream, next_point());
}

Command Event::next_point() const {
  const auto point = std::make_shared<Point>();
  {
    const std::lock_guard lock(state_->mutex);
    state_->latest = point;
  }
  return [point] {
    point->reached = true;
    point->reached.notify_all();
    return true;
  };
}

void Event::hold(Stream& stream) const {
  if (Graph::capturing(state_->graph) != nullptr) {
    stream.capture(state_->graph);
  } else {
    stream.gpu().enqueue_made(stream, [event = *this] { return event.held(); });
  }
}

Command Event::held() const {
  return [point = latest()] { return point->reached.load(); };
}

}  // namespace pacecar::nccl::cpu
