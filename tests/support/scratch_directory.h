// A temporary directory of a test, removed with its contents at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "transport/base/check.h"

namespace pacecar::test {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "pacecar-test.XXXXXX";
    PACECAR_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace pacecar::test
