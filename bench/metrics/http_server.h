// Serves pages of metrics over HTTP, or HTTPS, until stop().
#pragma once

#include <memory>
#include <string>

#include "bench/metrics/address.h"
#include "bench/metrics/exporter.h"
#include "transport/base/result.h"

namespace pacecar::metrics {

struct HttpOptions {
  Address address;
  std::string certificate;  // PEM files; empty: no TLS
  std::string key;
  std::string client_ca;  // clients show a certificate that it signed; empty: they need none
};

class HttpServer {
 public:
  // Listens; nobody is served before run(). Errors: kInvalidArgument (certificate, key), kSystem.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, Exporter& exporter);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // "http://127.0.0.1:18516/metrics"
  const std::string& url() const;
  // Serves until stop() of another thread, once. Errors: kSystem.
  Result<void> run();
  void stop();  // of a server that runs, or is about to

 private:
  struct Inside;  // keeps the library's header out of this one
  explicit HttpServer(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace pacecar::metrics
