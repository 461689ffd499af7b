// The values of all command-line flags, at their defaults until the command line says otherwise (flags.cpp
// declares the flags).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "engine/loaded_model.h"

namespace lily {

struct Options {
  std::string model = "tiny";

  // The machine.
  std::string backend = "auto";
  bool exact = false;
  std::int64_t threads = 0;
  std::string isa = "auto";
  std::string kv_type = "auto";
  bool pin = false;
  bool prefault = false;
  bool mlock = false;
  std::string log_level = "warn";
  std::int64_t max_seq = 0;
  std::int64_t slots = 1;
  std::int64_t kv_tokens = 0;
  std::int64_t cache_mib = 1024;
  std::string cache_file;
  std::int64_t chunk = 0;
  bool assume_template = false;

  // What goes in.
  std::optional<std::string> prompt;
  std::optional<std::string> system;
  std::vector<TokenId> ids;
  std::string ids_file;
  std::string text_file;
  std::string prompts_file;
  bool raw = false;
  bool literal = false;
  bool think = false;

  // Generation; what is not given comes from the checkpoint's generation_config.json.
  std::int64_t max_tokens = 0;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> repetition_penalty;
  std::optional<std::uint64_t> seed;
  bool ignore_eos = false;

  // What comes out.
  bool json = false;
  bool print_ids = false;
  std::string out;
  std::string json_file;
  std::string csv_file;
  std::string markdown_file;
  std::string svg_file;

  // serve.
  std::string config_file;
  bool print_config = false;
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  std::int64_t max_queue = 64;
  std::int64_t request_timeout = 0;
  std::int64_t drain_seconds = 30;
  std::string alias;  // comma-separated
  std::string api_key_file;
  std::string tls_cert;
  std::string tls_key;
  std::string allow_origin;  // comma-separated

  // completion.
  std::string completion;

  // synth and quantize.
  std::int64_t bits = 4;
  std::int64_t group_size = 64;
  std::string source;
  std::string rules;
  std::string rounding = "metal";
  std::string preset = "qwen3.6-35b-a3b";
  std::string tokenizer_from;

  // pull.
  std::string repository;
  std::string revision = "main";
  std::int64_t connections = 8;

  // inspect.
  bool verify = false;
  std::string checksums;

  // eval and bench.
  std::int64_t context = 2048;
  std::string against;
  std::int64_t continuation = 32;
  std::string against_model;
  std::vector<std::int64_t> contexts;  // no lengths at all: kDefaultContexts, as far as they fit
  std::string without;                 // names, with commas between
  std::vector<std::int64_t> warm;
  std::int64_t warm_context = 8192;
  std::vector<std::int64_t> streams;
  std::int64_t stream_context = 256;
  std::string http;
  std::int64_t decode = 64;
  std::int64_t rounds = 2;
};

/// The parts between commas, empty ones left out.
[[nodiscard]] std::vector<std::string> split_list(const std::string& list);

/// The part of `options` that opening a model takes.
[[nodiscard]] ModelOptions model_options(const Options& options);

}  // namespace lily
