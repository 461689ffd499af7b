#include "cli/bench_report.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/json_text.h"
#include "cli/version.h"

namespace lily {
namespace {

std::string shown(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// "-" where nothing was measured to compare with.
std::string share_of_bandwidth(const BenchReport& report, const BenchmarkRow& row) {
  if (report.bandwidth <= 0 || row.bytes_per_token <= 0) return "-";
  return fmt::format("{:.0f} %", 100 * row.bytes_per_second() / report.bandwidth);
}

std::string share_of_arithmetic(const BenchReport& report, const BenchmarkRow& row) {
  if (report.arithmetic <= 0 || row.multiplies_per_token <= 0) return "-";
  return fmt::format("{:.0f} %", 100 * row.multiplies_per_second() / report.arithmetic);
}

// A step's time: of every stream one token.
double step_milliseconds(const BenchmarkRow& row) {
  return 1e3 * static_cast<double>(row.shape.streams) / row.decode_tokens_per_second();
}

std::string heading(const BenchReport& report) {
  std::string text = fmt::format("{} on {}", report.model, report.backend);
  if (report.bandwidth > 0) text += fmt::format(", memory read at {:.1f} GB/s", report.bandwidth / 1e9);
  if (report.arithmetic > 0) {
    text += fmt::format(", registers multiplied at {:.1f} G multiply-adds/s", report.arithmetic / 1e9);
  }
  return text;
}

// What this process took; nothing where the model runs in another.
std::string memory_line(const BenchReport& report) {
  if (report.planned == 0) return "";
  return fmt::format("loaded in {:.2f} s; resident {}, {} of it mapped files; at most {}, {} planned for\n",
                     report.load_seconds, shown(report.memory.resident), shown(report.memory.mapped_files),
                     shown(report.memory.peak), shown(report.planned));
}

std::string left_out_lines(const BenchReport& report) {
  std::string text;
  for (const std::string& line : report.left_out) text += fmt::format("left out: {}\n", line);
  return text;
}

}  // namespace

std::string bench_text(const BenchReport& report) {
  std::string text = heading(report) + "\n" + memory_line(report) + "\n";
  text += fmt::format("{:>8} {:>8} {:>7} {:>14} {:>13} {:>12} {:>13} {:>9} {:>9} {:>7} {:>12} {:>7}\n",
                      "cached", "prompt", "streams", "prefill tok/s", "of arithmetic", "first token",
                      "decode tok/s", "ms/step", "MB/token", "GB/s", "of bandwidth", "spread");
  for (const BenchmarkRow& row : report.rows) {
    const bool bytes = row.bytes_per_token > 0;
    const std::string refused = row.refused();
    text += fmt::format(
        "{:>8} {:>8} {:>7} {:>14.1f} {:>13} {:>10.3f} s {:>13.2f} {:>9.2f} {:>9} {:>7} {:>12} {:>5.1f} %{}\n",
        row.shape.cached, row.shape.prompt, row.shape.streams, row.prefill_tokens_per_second(),
        share_of_arithmetic(report, row), row.prefill_seconds(), row.decode_tokens_per_second(),
        step_milliseconds(row), bytes ? fmt::format("{:.1f}", row.bytes_per_token / 1e6) : "-",
        bytes ? fmt::format("{:.1f}", row.bytes_per_second() / 1e9) : "-", share_of_bandwidth(report, row),
        100 * row.spread(), refused.empty() ? "" : "  refused: " + refused);
  }
  return text + left_out_lines(report);
}

std::string bench_markdown(const BenchReport& report) {
  std::string text = fmt::format("{}; lily {} {}; {} steps, {} rounds\n\n", heading(report), version(),
                                 commit(), report.decode, report.rounds);
  text +=
      "| cached | prompt | streams | prefill, tok/s | of arithmetic | first token, s | decoding, tok/s | ms "
      "a step | of "
      "bandwidth "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const BenchmarkRow& row : report.rows) {
    text += fmt::format("| {} | {} | {} | ", row.shape.cached, row.shape.prompt, row.shape.streams);
    if (const std::string refused = row.refused(); !refused.empty()) {
      text += fmt::format("refused: {} | | | | | |\n", refused);
      continue;
    }
    text +=
        fmt::format("{:.1f} | {} | {:.3f} | {:.2f} | {:.2f} | {} |\n", row.prefill_tokens_per_second(),
                    share_of_arithmetic(report, row), row.prefill_seconds(), row.decode_tokens_per_second(),
                    step_milliseconds(row), share_of_bandwidth(report, row));
  }
  const std::string after = memory_line(report) + left_out_lines(report);
  return after.empty() ? text : text + "\n" + after;
}

std::string bench_csv(const BenchReport& report) {
  std::string text =
      "cached,prompt,streams,prefill_tok_s,prefill_s,decode_tok_s,bytes_per_token,bytes_per_s,"
      "bandwidth_bytes_per_s,spread,refused,multiplies_per_token,multiplies_per_s,arithmetic_multiplies_per_"
      "s\n";
  for (const BenchmarkRow& row : report.rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", row.shape.cached, row.shape.prompt,
                        row.shape.streams, row.prefill_tokens_per_second(), row.prefill_seconds(),
                        row.decode_tokens_per_second(), row.bytes_per_token, row.bytes_per_second(),
                        report.bandwidth, row.spread(), row.refused(), row.multiplies_per_token,
                        row.multiplies_per_second(), report.arithmetic);
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  nlohmann::ordered_json json = {{"version", version()},
                                 {"commit", commit()},
                                 {"unix_time", std::time(nullptr)},
                                 {"model", report.model},
                                 {"backend", report.backend},
                                 {"decode_steps", report.decode},
                                 {"rounds", report.rounds},
                                 {"load_seconds", report.load_seconds},
                                 {"bandwidth_bytes_per_second", report.bandwidth},
                                 {"arithmetic_multiplies_per_second", report.arithmetic},
                                 {"planned_bytes", report.planned},
                                 {"resident_bytes", report.memory.resident},
                                 {"peak_bytes", report.memory.peak},
                                 {"mapped_file_bytes", report.memory.mapped_files},
                                 {"left_out", report.left_out}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchmarkRow& row : report.rows) {
    auto runs = nlohmann::ordered_json::array();
    for (const BenchmarkRun& run : row.runs) {
      runs.push_back({{"prompt_tokens", run.read},
                      {"decoded_tokens", run.decoded},
                      {"prefill_seconds", run.prefill_seconds},
                      {"decode_seconds", run.decode_seconds},
                      {"step_seconds", run.step_seconds}});
    }
    json["rows"].push_back({{"cached", row.shape.cached},
                            {"prompt", row.shape.prompt},
                            {"streams", row.shape.streams},
                            {"prefill_tokens_per_second", row.prefill_tokens_per_second()},
                            {"prefill_seconds", row.prefill_seconds()},
                            {"decode_tokens_per_second", row.decode_tokens_per_second()},
                            {"bytes_per_token", row.bytes_per_token},
                            {"bytes_per_second", row.bytes_per_second()},
                            {"multiplies_per_token", row.multiplies_per_token},
                            {"multiplies_per_second", row.multiplies_per_second()},
                            {"spread", row.spread()},
                            {"refused", row.refused()},
                            {"tokens", row.runs.front().tokens},
                            {"runs", runs}});
  }
  return json_document(json);
}

}  // namespace lily
