// Random programs on a GPU's streams, with events between them, against the order that CUDA
// promises.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "bench/nccl/cpu_device/gpu.h"

namespace pacecar::gpu_property {
namespace {

using nccl::cpu::Event;
using nccl::cpu::Gpu;
using nccl::cpu::Stream;

enum class Kind { kDefault, kBlocking, kNonBlocking };

// A command of the model: which commands end before it begins.
struct Node {
  size_t stream;
  std::vector<bool> after;  // of earlier nodes
  size_t began = 0;
  size_t ended = 0;
};

class Program {
 public:
  Program() {
    streams_.emplace_back(Kind::kDefault, &gpu_.default_stream());
    for (const bool blocking : {true, true, false, false}) {
      streams_.emplace_back(blocking ? Kind::kBlocking : Kind::kNonBlocking,
                            &gpu_.create_stream(blocking));
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    gpu_.wait_until_idle();
    for (size_t i = 1; i < streams_.size(); ++i) gpu_.destroy(*streams_[i].second);
  }

  void command(size_t stream, int turns) {
    Node& node = add(stream);
    gpu_.enqueue(*streams_[stream].second, [this, &node, left = turns, begun = false]() mutable {
      if (!std::exchange(begun, true)) node.began = ++clock_;
      if (left-- > 0) return false;
      node.ended = ++clock_;
      return true;
    });
  }
  void record(size_t event, size_t stream) {
    add(stream);
    recorded_[event] = nodes_.size() - 1;
    events_[event].record(*streams_[stream].second);
  }
  void hold(size_t event, size_t stream) {
    Node& node = add(stream);
    if (recorded_[event]) follow(node, *recorded_[event]);
    events_[event].hold(*streams_[stream].second);
  }

  void check() {
    gpu_.wait_until_idle();
    for (const Event& event : events_) RC_ASSERT(event.reached());
    for (const Node& node : nodes_) {
      if (node.began == 0) continue;  // of an event
      RC_ASSERT(node.ended > node.began);
      for (size_t i = 0; i < node.after.size(); ++i) {
        if (node.after[i]) RC_ASSERT(nodes_[i].ended < node.began);
      }
    }
  }

  static constexpr size_t kStreams = 5;
  static constexpr size_t kEvents = 2;

 private:
  Node& add(size_t stream) {
    Node& node = nodes_.emplace_back(Node{stream, std::vector<bool>(nodes_.size())});
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      const Kind mine = streams_[stream].first;
      const Kind other = streams_[nodes_[i].stream].first;
      if (nodes_[i].stream == stream || (mine == Kind::kDefault && other == Kind::kBlocking) ||
          (mine == Kind::kBlocking && other == Kind::kDefault)) {
        follow(node, i);
      }
    }
    return node;
  }
  void follow(Node& node, size_t earlier) const {
    node.after[earlier] = true;
    for (size_t i = 0; i < earlier; ++i) {
      if (nodes_[earlier].after[i]) node.after[i] = true;
    }
  }

  Gpu& gpu_ = Gpu::get(0);
  std::vector<std::pair<Kind, Stream*>> streams_;
  std::deque<Node> nodes_;  // where they are, they stay
  std::array<Event, kEvents> events_;
  std::array<std::optional<size_t>, kEvents> recorded_;
  size_t clock_ = 0;  // of the GPU's thread
};

RC_GTEST_PROP(StreamsProperty, KeepTheOrderThatCudaPromises, ()) {
  Program program;
  const auto steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    const auto stream = *rc::gen::inRange<size_t>(0, Program::kStreams);
    const auto event = *rc::gen::inRange<size_t>(0, Program::kEvents);
    switch (*rc::gen::inRange(0, 4)) {
      case 0: program.record(event, stream); break;
      case 1: program.hold(event, stream); break;
      default: program.command(stream, *rc::gen::inRange(0, 4));
    }
  }
  program.check();
}

}  // namespace
}  // namespace pacecar::gpu_property
