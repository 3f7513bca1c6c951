// Replays a corpus through a libFuzzer entry point where the compiler has no libFuzzer: every input
// of the files named on the command line (see corpus.py), and each of its prefixes; after --whole
// only whole inputs.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

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
  size_t inputs = 0;
  size_t replayed = 0;
  bool whole = false;
  for (int i = 1; i < argc; ++i) {
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
        LLVMFuzzerTestOneInput(input.data(), input.size());
        ++replayed;
      }
    }
  }
  std::printf("replayed %zu inputs of %zu\n", replayed, inputs);
  return inputs == 0 ? 1 : 0;
}
