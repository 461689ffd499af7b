// The plot of bench_report.h: two panels of rates by context, on logarithmic contexts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_report.h"

namespace lily {
namespace {

struct Point {
  double context = 0;
  double rate = 0;
};

// Where a panel lies in the picture, in pixels.
struct Panel {
  double left = 0;
  double top = 0;
  double width = 340;
  double height = 200;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

// A line through `points` with a figure at each; the rate's axis starts at 0.
std::string panel_svg(const Panel& panel, std::string_view title, const std::vector<Point>& points) {
  std::string svg =
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999\"/>\n",
                  panel.left, panel.top, panel.width, panel.height);
  svg += text_at(panel.left, panel.top - 8, "start", title);
  if (points.empty()) return svg;
  const auto [first, last] = std::ranges::minmax(points, {}, &Point::context);
  const double span = std::max(1.0, std::log2(last.context / first.context));
  const double highest = std::ranges::max(points, {}, &Point::rate).rate * 1.15;
  std::string line;
  for (const Point& point : points) {
    const double x = panel.left + 20 + (panel.width - 60) * std::log2(point.context / first.context) / span;
    const double y = panel.top + panel.height * (1 - point.rate / highest);
    line += fmt::format("{:.1f},{:.1f} ", x, y);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", x, y);
    svg += text_at(x, y - 8, "middle", fmt::format("{:.{}f}", point.rate, point.rate < 100 ? 1 : 0));
    svg += text_at(x, panel.top + panel.height + 16, "middle", fmt::format("{:.0f}", point.context));
  }
  return svg +
         fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\"/>\n", line);
}

}  // namespace

std::string bench_svg(const BenchReport& report) {
  std::vector<Point> prefill;
  std::vector<Point> decode;
  for (const BenchmarkRow& row : report.rows) {
    if (row.shape.cached > 0 || row.shape.streams > 1 || !row.refused().empty()) continue;
    const auto context = static_cast<double>(row.shape.prompt);
    prefill.push_back({context, row.prefill_tokens_per_second()});
    decode.push_back({context, row.decode_tokens_per_second()});
  }
  std::ranges::sort(prefill, {}, &Point::context);
  std::ranges::sort(decode, {}, &Point::context);
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"330\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"800\" height=\"330\" fill=\"white\"/>\n";
  svg += text_at(30, 24, "start", fmt::format("{} on {}", report.model, report.backend));
  svg += panel_svg({.left = 30, .top = 70}, "prefill, tokens a second, by context", prefill);
  svg += panel_svg({.left = 430, .top = 70}, "decoding, tokens a second, by context", decode);
  return svg + "</svg>\n";
}

}  // namespace lily
