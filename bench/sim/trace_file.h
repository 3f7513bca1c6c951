// A file with the events of a run, one JSON object per line: starts, arrivals and ends of flows,
// triggers, faults, and changes of a flow's rate or of what limits it. Times are in nanoseconds
// since time 0. Thread rule: one thread.
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
  // After kMostRates of them, one line "rates-left-out" follows, and no more.
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
