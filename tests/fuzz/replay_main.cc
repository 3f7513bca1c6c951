// Replays corpora where the compiler has no libFuzzer: `fuzz_replay TARGET [--whole] FILE...` gives
// the target every input of the files (see corpus.py) and each of its prefixes; with --whole only
// whole inputs.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

// The bytes that follow the name in a line.
std::vector<uint8_t> input_of(const std::string& line) {
  std::vector<uint8_t> bytes;
  for (size_t at = line.find(' ') + 1; at < line.size(); ++at) {
    if (line[at] != '\\') {
      bytes.push_back(static_cast<uint8_t>(line[at]));
    } else if (line.at(++at) == 'x') {
      bytes.push_back(static_cast<uint8_t>(std::stoul(line.substr(at + 1, 2), nullptr, 16)));
      at += 2;
    } else {
      bytes.push_back(line[at] == 'n' ? '\n' : '\\');
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const auto* target = pacecar::fuzz::Target::first;
  while (argc > 1 && target != nullptr && std::string_view(target->name) != argv[1]) {
    target = target->next;
  }
  if (argc < 2 || target == nullptr)
    return std::fputs("usage: fuzz_replay TARGET FILE\n", stderr), 2;
  size_t inputs = 0;
  size_t replayed = 0;
  bool whole = false;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--whole") {
      whole = true;
      continue;
    }
    std::ifstream file(argv[i]);
    for (std::string line; std::getline(file, line); ++inputs) {
      const std::vector<uint8_t> bytes = input_of(line);
      for (size_t size = whole ? bytes.size() : 0; size <= bytes.size(); ++size) {
        // A copy of exactly this size, so that the address sanitizer sees every overrun.
        const std::vector<uint8_t> input(bytes.begin(), bytes.begin() + static_cast<long>(size));
        target->run(input.data(), input.size());
        ++replayed;
      }
    }
  }
  std::printf("replayed %zu inputs of %zu\n", replayed, inputs);
  return inputs == 0 ? 1 : 0;
}
