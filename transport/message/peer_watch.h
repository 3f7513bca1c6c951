// PeerWatch: notices soon that the peer of a flow has ended. A line is the connection over which
// the two sides met; the process that ends closes it. That is a hint only, as a peer may close it
// for another reason: so the peer is asked, by a word that a living one acknowledges.
//   kNoLine --add_line--> kLine --all lines have ended--> kAsking --limit_ polls--> Finding::kEnded
//      ^                                                 |
//      +------------------ a word is acknowledged -------+
// A queue pair of an RDMA NIC acknowledges after its process has ended, until the kernel has freed
// what the process had. So after an answer of such a NIC more questions follow, later.
// Counts polls, not time: a process that was stopped finds acknowledgements late. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class PeerLine {
 public:
  virtual ~PeerLine() = default;
  virtual bool ended() = 0;  // Does not wait. From any thread.
};

class PeerWatch {
 public:
  static constexpr Duration kPollInterval = Duration::from_ms(50);
  static constexpr uint32_t kQuestions = 6;
  static constexpr uint32_t kQuestionsToNic = 24;  // a peer that lives may be silent for 1 s
  static constexpr uint32_t kMostQuestions = 96;   // 9 s after the end of the line
  static constexpr size_t kMostLines = 2;

  enum class Finding : uint8_t { kNothing, kAsk, kEnded };

  // Many connections may share a flow: the sender keeps the first two lines and closes the others.
  // The receiver, which may learn of the lines in another order, keeps the ones that stay open.
  void add_line(std::shared_ptr<PeerLine> line, bool sending) {
    drop_ended();
    if (line == nullptr || (sending && lines_.size() == kMostLines)) return;
    lines_.push_back(std::move(line));
    state_ = State::kLine;
    next_poll_ = Instant();
  }

  // While the flow has requests. kAsk: write a word to the peer, unless one is on its way.
  Finding poll(Instant now) {
    if (state_ == State::kNoLine || now < next_poll_) return Finding::kNothing;
    next_poll_ = now + kPollInterval;
    if (state_ == State::kLine) {
      drop_ended();
      if (!lines_.empty()) return Finding::kNothing;
      state_ = State::kAsking;
      questions_ = 0;
      limit_ = kQuestions;
    }
    return ++questions_ > limit_ ? Finding::kEnded : Finding::kAsk;
  }

  // What the peer has acknowledged before it ended may arrive after the first question.
  // `by_process`: queue pairs of this kind of NIC end with their process.
  void on_word_done(bool by_process) {
    if (state_ != State::kAsking || questions_ <= 1) return;
    if (by_process || limit_ == kMostQuestions) {
      state_ = State::kNoLine;
      return;
    }
    questions_ = 0;
    limit_ = limit_ < kQuestionsToNic ? kQuestionsToNic : 2 * limit_;
    next_poll_ = next_poll_ + kPollInterval * limit_;
  }

 private:
  enum class State : uint8_t { kNoLine, kLine, kAsking };

  void drop_ended() {
    std::erase_if(lines_, [](const auto& line) { return line->ended(); });
  }

  State state_ = State::kNoLine;
  uint32_t questions_ = 0;
  uint32_t limit_ = kQuestions;  // of questions
  Instant next_poll_;
  std::vector<std::shared_ptr<PeerLine>> lines_;
};

}  // namespace pacecar
