#include "net_plugin/host/line_poller.h"

#include <algorithm>
#include <utility>

namespace pacecar::nccl {
namespace {

constexpr size_t kWordsPerLine = 16;
constexpr uint64_t kEveryByte = 0x0101010101010101U;
constexpr size_t kWordsPerMessage = 8192;  // 64 KiB
constexpr size_t kWordsBetweenWaits = 512;
constexpr int kMostLooks = 20'000;  // of one wait: some 20 us

uint64_t load(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }

}  // namespace

LinePoller::LinePoller(std::span<uint8_t> lines)
    : words_(reinterpret_cast<uint64_t*>(lines.data()), lines.size() / sizeof(uint64_t)),
      seen_(words_.size()),
      thread_([this](const std::stop_token& over) { poll(over); }) {}

LinePoller::Sightings LinePoller::stop() {
  thread_.request_stop();
  thread_.join();
  return sightings_;
}

void LinePoller::poll(const std::stop_token& over) {
  for (bool last = false; !last;) {
    last = over.stop_requested();
    for (size_t message = 0; message < words_.size(); message += kWordsPerMessage) {
      const size_t end = std::min(message + kWordsPerMessage, words_.size());
      for (size_t line = message; line < end && !last; line += kWordsBetweenWaits) {
        wait_at(line);
        look_at(line);
      }
      for (size_t line = message; line < end; line += kWordsPerLine) look_at(line);
    }
  }
}

void LinePoller::wait_at(size_t line) const {
  const size_t flag = line + kWordsPerLine - 1;
  for (int i = 0; i < kMostLooks && load(words_[flag]) == seen_[flag]; ++i) {
  }
}

void LinePoller::look_at(size_t line) {
  const uint64_t flag = look_at_word(line + kWordsPerLine - 1);
  for (size_t i = 0; i < kWordsPerLine - 1; ++i) {
    sightings_.early += look_at_word(line + i) < flag ? 1 : 0;
  }
}

uint64_t LinePoller::look_at_word(size_t index) {
  const uint64_t word = load(words_[index]);
  sightings_.torn += word != (word & 0xff) * kEveryByte ? 1 : 0;
  sightings_.late += word < std::exchange(seen_[index], word) ? 1 : 0;
  return word;
}

}  // namespace pacecar::nccl
