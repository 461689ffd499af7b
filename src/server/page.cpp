#include "server/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/embedded.h"

namespace lily {

std::span<const EmbeddedFile> embedded_page();

namespace {

constexpr std::string_view kIndex = "index.html";

// What a model writes ends up in this page, so the browser is told to load nothing from elsewhere, to run no
// script but our files, and (require-trusted-types-for) to turn no string into markup past the sanitiser.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify";

std::string_view media_type(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes = {{
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml"},
  }};
  const auto* type = std::ranges::find_if(
      kTypes, [&](std::string_view ending) { return name.ends_with(ending); },
      &std::pair<std::string_view, std::string_view>::first);
  LILY_CHECK(type != kTypes.end(), "{}: no media type for this ending", name);
  return type->second;
}

// FNV-1a: a file that changes by a release changes its tag; nobody gains by forging one.
std::string entity_tag(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  return fmt::format("\"{:016x}\"", hash);
}

// If-None-Match is a list of tags, some of them weak (W/"..."), or a star.
bool has_already(const HttpRequest& request, std::string_view tag) {
  const std::string* tags = request.header("If-None-Match");
  return tags != nullptr && (*tags == "*" || tags->find(tag) != std::string::npos);
}

HttpHandler serve(const EmbeddedFile& file) {
  return [file, type = media_type(file.name), tag = entity_tag(file.bytes)](const HttpRequest& request,
                                                                            ResponseWriter& writer) {
    HttpResponse response{.status = has_already(request, tag) ? 304 : 200, .content_type = std::string(type)};
    response.body.assign(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    response.headers = {{"ETag", tag},
                        {"Cache-Control", "no-cache"},  // kept, and asked about each time
                        {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
                        {"Cross-Origin-Resource-Policy", "same-origin"},
                        {"Referrer-Policy", "no-referrer"},
                        {"X-Content-Type-Options", "nosniff"}};
    writer.send(response);
  };
}

}  // namespace

std::vector<HttpRoute> page_routes() {
  std::vector<HttpRoute> routes;
  for (const EmbeddedFile& file : embedded_page()) {
    const std::string path = file.name == kIndex ? "/" : fmt::format("/page/{}", file.name);
    routes.push_back({"GET", path, serve(file)});
  }
  if (routes.empty()) {
    routes.push_back({"GET", "/", [](const HttpRequest&, ResponseWriter& writer) {
                        writer.send(
                            {.content_type = "text/plain; charset=utf-8", .body = "lily is running\n"});
                      }});
  }
  return routes;
}

}  // namespace lily
