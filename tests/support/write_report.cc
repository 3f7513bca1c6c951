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
  std::ofstream report(argv[2], std::ios::binary);
  report << pacecar::page_of({}, "page.html", data);
  return report.flush() ? 0 : 1;
}
