// The events of a run as a file with one JSON object per line: flows that start, arrive and end,
// triggers, faults; flows whose rate changes, or the reason for it. Times are nanoseconds from the
// begin of the run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/messenger.h"

namespace pacecar {

class TraceFile {
 public:
  static constexpr uint64_t kMostRates = 1'000'000;  // some 200 MB

  // Errors: kSystem, naming the file.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);

  void write(Duration time, std::string_view event, std::string_view what, uint64_t number);
  // After kMostRates of them a last line says that more are left out.
  void write_rate(Duration time, uint64_t flow, const Explanation& why);
  // Errors: kSystem, when not all could be written.
  Result<void> close();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  uint64_t rates_ = 0;
};

}  // namespace pacecar
