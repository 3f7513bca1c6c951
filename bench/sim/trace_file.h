// The events of a run as a file with one JSON object per line: flows that start, arrive and end,
// triggers, faults. Times are nanoseconds from the begin of the run.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

class TraceFile {
 public:
  // Errors: kSystem, naming the file.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);

  void write(Duration time, std::string_view event, std::string_view what, uint64_t number);
  // Errors: kSystem, when not all could be written.
  Result<void> close();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace pacecar
