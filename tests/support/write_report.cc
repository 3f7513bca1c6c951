// write_report DATA.json REPORT.html: makes a report from a file of data. For report_test.py, which
// opens it in a browser.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/ab/report/report.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: write_report DATA.json REPORT.html\n", stderr);
    return 2;
  }
  std::ifstream file(argv[1]);
  const auto data = nlohmann::json::parse(file);
  const auto written = pacecar::write_report(data, argv[2]);
  if (!written) {
    std::fprintf(stderr, "%s\n", written.error().message.c_str());
    return 1;
  }
  return 0;
}
