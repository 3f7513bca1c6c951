// Prints the table of parameters as transport/parameters.md has it.
#include <cstdio>
#include <string>

#include "transport/base/params.h"

int main() {
  const pacecar::Params defaults;
  std::puts("| parameter | default | meaning | accepts |\n|---|---|---|---|");
  size_t row = 0;
  for (const pacecar::ParamInfo& info : pacecar::param_table()) {
    const std::string value = defaults.text(row++);
    const std::string cell = value.empty() ? "" : "`" + value + "`";
    std::printf("| `%s` | %s | %s | %s |\n", std::string(info.name).c_str(), cell.c_str(),
                std::string(info.doc).c_str(), describe_accepted(info).c_str());
  }
}
