// A GPU: a thread that works off streams. Commands of one stream run in order; the default stream
// waits for all blocking streams, and they for it, as CUDA's legacy default stream does.
//
//   enqueue -> waiting -> running (its function returns false) -> done (true): the next of its
//   stream
//
// Thread rule: any thread may call; commands run on the GPU's own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace pacecar::nccl::cpu {

// Called again and again until it returns true. It must not wait.
using Command = std::function<bool()>;
// Makes a command that has a state of its own; called for each launch of a graph.
using CommandMaker = std::function<Command()>;

class Gpu;

class Stream {
 public:
  Gpu& gpu() const { return gpu_; }
  uint64_t id() const { return id_; }
  // The graph that captures this stream; nullptr: its commands run.
  class Graph* graph() const;
  void capture(uint64_t graph_id) { graph_id_ = graph_id; }

 private:
  friend class Gpu;
  struct Entry {
    uint64_t order;  // among all commands of the GPU
    Command command;
  };
  Stream(Gpu& gpu, bool blocking, uint64_t id) : gpu_(gpu), blocking_(blocking), id_(id) {}

  Gpu& gpu_;
  const bool blocking_;
  const uint64_t id_;
  uint64_t graph_id_ = 0;  // of the last graph that captured this stream
  bool destroyed_ = false;
  std::deque<Entry> entries_;          // the first is running
  std::atomic<size_t> unfinished_{0};  // = entries_.size(), for pollers without the mutex
};

class Gpu {
 public:
  // The GPU of that number, which is below settings().devices.
  static Gpu& get(int number);

  int number() const { return number_; }
  Stream& default_stream() { return default_stream_; }
  Stream& create_stream(bool blocking);
  // Enqueued commands still run.
  void destroy(Stream& stream);

  // If the stream is captured, every launch of the graph runs a copy of `command`.
  void enqueue(Stream& stream, Command command);
  void enqueue_made(Stream& stream, CommandMaker make);
  static bool idle(const Stream& stream) { return stream.unfinished_.load() == 0; }
  void wait_until_idle(const Stream& stream) const;
  void wait_until_idle() const;

 private:
  explicit Gpu(int number);
  [[noreturn]] void work();
  bool may_run(const Stream& stream) const;
  bool any_waiting() const;
  void collect();

  const int number_;
  mutable std::mutex mutex_;
  std::condition_variable enqueued_;
  mutable std::condition_variable completed_;
  std::vector<std::unique_ptr<Stream>> streams_;
  uint64_t last_order_ = 0;
  Stream& default_stream_;  // the first; found without the mutex
};

// A point in a stream. Recorded again, it is another point: who was held up by the first still is.
// Copies are the same event, which lives as long as graphs need it.
class Event {
 public:
  // The event now means the present end of `stream`. If `stream` is captured, the event only serves
  // streams that it holds, which are then captured too.
  void record(Stream& stream) const;
  // `stream` waits for the event's present point; if captured, for its point at each launch.
  void hold(Stream& stream) const;
  // From now on the event means the point at which the returned command runs.
  Command next_point() const;
  // A command that holds up its stream until the event's present point is reached.
  Command held() const;
  bool reached() const { return latest()->reached.load(); }
  void wait() const { latest()->reached.wait(false); }

 private:
  struct Point {
    std::atomic<bool> reached{false};
  };
  struct State {
    State() { latest->reached = true; }  // it means nothing yet
    std::mutex mutex;
    std::shared_ptr<Point> latest = std::make_shared<Point>();
    std::atomic<uint64_t> graph{0};  // the id of that where it was recorded last; 0: none
  };
  std::shared_ptr<Point> latest() const {
    const std::lock_guard lock(state_->mutex);
    return state_->latest;
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// To be called where a block moves data: a GPU whose blocks only wait takes longer pauses.
void note_progress();

// What a thread does between two looks at memory that others write: at first it gives way, then it
// sleeps, as a machine may have fewer processors than GPUs and proxies. One per thread and wait.
class Patience {
 public:
  void reset() { looks_ = 0; }
  void wait();

 private:
  uint32_t looks_ = 0;
};

}  // namespace pacecar::nccl::cpu
