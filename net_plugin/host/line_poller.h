// Plays the GPU of NCCL's LL and LL128 protocols: a thread that polls lines of host memory while a
// plugin writes them, and takes a line as complete when it sees its flag.
// Round n of the test sends lines in which every byte is n, and rounds only grow. Within a line of
// 128 bytes the last word, of 8 bytes, is the flag (LL128); every word is stored whole (LL); and
// an overwritten word never comes back, because by then the line is in use again.
// Messages are expected in the order of their memory, over and over: the thread waits where the
// next one is to come, since a line can be seen half written only while it is written.
#pragma once

#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace pacecar::nccl {

class LinePoller {
 public:
  // `lines` is all zeros, and a multiple of 128 bytes.
  explicit LinePoller(std::span<uint8_t> lines);
  LinePoller(const LinePoller&) = delete;
  LinePoller& operator=(const LinePoller&) = delete;

  struct Sightings {
    uint64_t torn = 0;   // words of more than one round
    uint64_t early = 0;  // flags before a word of their line
    uint64_t late = 0;   // words of an earlier round than the one before
    uint64_t sum() const { return torn + early + late; }
  };
  Sightings stop();  // after one more look at everything

 private:
  void poll(const std::stop_token& over);
  void wait_at(size_t line) const;
  void look_at(size_t line);
  uint64_t look_at_word(size_t index);

  std::span<uint64_t> words_;
  std::vector<uint64_t> seen_;
  Sightings sightings_;
  std::jthread thread_;
};

}  // namespace pacecar::nccl
