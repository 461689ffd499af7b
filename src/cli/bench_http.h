// The measurements of `lily bench` on a server that speaks OpenAI's API, ours or another: the same shapes,
// through /v1/completions, with prompts of words.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/api_client.h"
#include "engine/benchmark.h"

namespace lily {

/// The name of the first model that the server lists.
Result<std::string> served_model(const ApiClient& client);

/// Every prompt is about as many tokens as its shape says (the server's count is what rates are made of) and
/// starts like none before it, so that nothing but a shape's `cached` part can come from a prefix cache.
/// Answers are not compared: no two runs have the same prompt.
Result<std::vector<BenchmarkRow>> run_http_benchmark(const ApiClient& client, const std::string& model,
                                                     const BenchmarkOptions& options);

/// `count` words of one token each in most vocabularies; equal seeds give equal words.
[[nodiscard]] std::string benchmark_words(std::int64_t count, std::uint64_t seed);

}  // namespace lily
