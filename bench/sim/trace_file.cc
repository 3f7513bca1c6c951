#include "bench/sim/trace_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace pacecar {

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot write the trace '{}': {}", path, std::strerror(errno)));
  }
  return std::unique_ptr<TraceFile>(new TraceFile(path, file));
}

void TraceFile::write(Duration time, std::string_view event, std::string_view what,
                      uint64_t number) {
  fmt::print(file_.get(), "{{\"time_ns\": {}, \"event\": \"{}\", \"{}\": {}}}\n", time.ns(), event,
             what, number);
}

Result<void> TraceFile::close() {
  const bool good = std::ferror(file_.get()) == 0 && std::fflush(file_.get()) == 0;
  if (good) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write the trace '{}': is its disk full?", path_));
}

}  // namespace pacecar
