#include "cli/flag_table.h"

#include <array>

#include "cli/commands.h"
#include "cli/completion.h"

namespace lily {
namespace {

enum : unsigned {
  kChat = 1U << 0U,
  kRun = 1U << 1U,
  kServe = 1U << 2U,
  kBench = 1U << 3U,
  kEval = 1U << 4U,
  kLogits = 1U << 5U,
  kSynth = 1U << 6U,
  kInspect = 1U << 7U,
  kTokenize = 1U << 8U,
  kDetokenize = 1U << 9U,
  kDevices = 1U << 10U,
  kAblate = 1U << 11U,
  kQuantize = 1U << 12U,
  kPull = 1U << 13U,
  kSelftest = 1U << 14U,
  kEvery = (1U << 15U) - 1U,  // that runs a model or reads one
  kCompletion = 1U << 15U,
  kAnswers = kChat | kRun,
  kRunsModel = kAnswers | kServe | kBench | kAblate | kEval | kLogits,
  kTakesModel = kEvery & ~(kSynth | kDevices | kQuantize | kPull | kSelftest),
};

constexpr std::string_view kModelHelp =
    "MODEL is a checkpoint directory, or 'tiny', the model inside this program (the default).";

constexpr std::array kCommands = {
    Command{kChat, "chat", "talk to the model in the terminal",
            "Streams answers, keeps the conversation, and takes /commands (/help lists them).\n"
            "Ctrl-C stops an answer; Ctrl-D leaves. With input from a pipe every line is a message.",
            run_chat},
    Command{kRun, "run", "answer one prompt and exit",
            "The prompt is sent as a user message in the model's chat format, unless --raw.\n"
            "  lily run -p 'Why is the sky blue?'\n"
            "  git diff | lily run ~/models/Qwen3.6-35B-A3B-4bit -p - --system 'Write a commit message'\n"
            "  lily run --ids 1,2,3 -n 8 --temperature 0 --print-ids",
            run_run},
    Command{kServe, "serve", "serve the OpenAI-compatible API over HTTP",
            "Prints 'listening on URL' when it is ready; Ctrl-C or SIGTERM finishes what runs and exits.\n"
            "  lily serve --port 8080\n"
            "  curl http://127.0.0.1:8080/v1/models",
            run_serve},
    Command{kBench, "bench", "measure prefill and decode speed",
            "Greedy, a synthetic prompt, after a warm-up of the same shape; loading is not timed.\n"
            "Prefill counts until the first token is readable, decode the --decode steps after it.\n"
            "Rows whose rounds differ by more than 3 %, or in their tokens, are marked as refused.\n"
            "  lily bench --contexts 256,4096,32768 --warm 50,500 --streams 1,2,4,8,16\n"
            "  lily bench --http http://127.0.0.1:8080 --contexts 1024",
            run_bench},
    Command{kAblate, "ablate", "measure what each optimisation is worth",
            "Measures as bench does, with everything on and then with each of the backend's optimisations\n"
            "switched off in turn, and with everything on once more, to see that the machine kept still.\n"
            "  lily ablate --contexts 512,4096",
            run_ablate},
    Command{kEval, "eval", "measure perplexity, or the distance to another backend",
            "Cuts the text into windows of --context tokens that do not overlap and scores every token of a\n"
            "window but its first, given the tokens before it in the window. No token is added.\n"
            "  lily eval --text book.txt\n"
            "  lily eval --text book.txt --backend cpu --against reference\n"
            "  lily eval --text book.txt --against cpu:exact\n"
            "  lily eval --prompts bench/prompts.jsonl --against http://127.0.0.1:8080",
            run_eval},
    Command{kLogits, "logits", "write the logits of every position to a file",
            "float32 [tokens, vocabulary], unmasked. --chunk 1 goes token by token, as decoding does.\n"
            "  lily logits tiny --ids 1,2,3 --out logits.npy",
            run_logits},
    Command{kSynth, "synth", "write a checkpoint of random weights",
            "In the published layout, for speed and memory, where the real weights are not at hand.\n"
            "  lily synth ~/models/synthetic-35b --preset qwen3.6-35b-a3b",
            run_synth},
    Command{kQuantize, "quantize", "quantize an original checkpoint as MLX does",
            "From bf16 safetensors under Hugging Face's names to the layout that this program runs, byte for "
            "byte.\n"
            "An interrupted run goes on where it stopped. Routers have 8 bits unless a rule says otherwise.\n"
            "  lily quantize ~/models/Qwen3.6-35B-A3B ~/models/Qwen3.6-35B-A3B-4bit\n"
            "  lily quantize ~/models/Qwen3.5-4B out --rules 'v_proj=6,down_proj=6,lm_head=8:32'",
            run_quantize},
    Command{
        kPull, "pull", "download a checkpoint from a hub",
        "Into the cache that Hugging Face's tools share, and prints the directory, which is a MODEL. "
        "Interrupted\n"
        "downloads go on where they stopped. HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE and HF_HOME are honoured.\n"
        "  lily chat $(lily pull mlx-community/Qwen3.6-35B-A3B-4bit)",
        run_pull},
    Command{kInspect, "inspect", "show what a checkpoint holds and needs",
            "Reads headers only, and lists everything that would keep the checkpoint from loading.",
            run_inspect},
    Command{kTokenize, "tokenize", "text to token ids",
            "  lily tokenize -p 'Hello!'\n"
            "  lily tokenize --out book.npy < book.txt",
            run_tokenize},
    Command{kDetokenize, "detokenize", "token ids to text", "  lily tokenize -p 'Hello!' | lily detokenize",
            run_detokenize},
    Command{kDevices, "devices", "list the backends and this machine", "", run_devices},
    Command{kSelftest, "selftest", "check a backend against the reference",
            "Runs random small models and the tiny model on --backend and on plain f32 code, and prints a\n"
            "report to paste into an issue. Exits with 1 where they do not agree.\n"
            "  lily selftest --backend metal",
            run_selftest},
    Command{kCompletion, "completion", "print a shell's completions, or the man page",
            "KIND is bash, zsh, fish or man. An installed lily has brought them along.\n"
            "  source <(lily completion bash)",
            run_completion},
};

constexpr std::string_view kInput = "Input";
constexpr std::string_view kGeneration = kGenerationGroup;
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kService = "Service";
constexpr std::string_view kMeasurement = "Measurement";
constexpr std::string_view kMachine = "Machine";

constexpr Expected at_least(double low) {
  return {.low = low};
}
constexpr Expected from_to(double low, double high) {
  return {.low = low, .high = high};
}
constexpr Expected one_of(std::string_view choices) {
  return {.choices = choices};
}

// clang-format off
constexpr std::array kFlags = {
    // Arguments without a name; command_help() says what they are.
    Flag{"MODEL", &Options::model, "", kTakesModel, "", ""},
    Flag{"HF_DIR", &Options::source, "", kQuantize, "", ""},
    Flag{"ORG/NAME", &Options::repository, "", kPull, "", ""},
    Flag{"OUT", &Options::out, "", kSynth | kQuantize, "", ""},
    Flag{"KIND", &Options::completion, "", kCompletion, "", "", one_of(kCompletionKinds)},

    Flag{"-p,--prompt", &Options::prompt, "TEXT", kRun | kTokenize, kInput, "the text; - reads standard input"},
    Flag{"--system", &Options::system, "TEXT", kAnswers, kInput, "the system message"},
    Flag{"--think", &Options::think, "", kAnswers, kInput, "let the model reason before it answers"},
    Flag{"--raw", &Options::raw, "", kRun, kInput, "take the prompt as it is, without the chat format"},
    Flag{"--literal", &Options::literal, "", kTokenize, kInput,
         "control strings such as <|im_end|> stay ordinary text"},
    Flag{"--ids", &Options::ids, "1,2,3", kRun | kLogits | kDetokenize, kInput, "token ids"},
    Flag{"--ids-file", &Options::ids_file, "F.npy", kRun | kLogits | kEval | kDetokenize, kInput,
         "token ids as int32 .npy"},
    Flag{"--text", &Options::text_file, "F", kEval, kInput, "a text file; - reads standard input"},
    Flag{"--prompts", &Options::prompts_file, "F.jsonl", kEval, kInput,
         "texts of their own, a line each: {\"text\": \"...\"}; bench/prompts.jsonl has some"},
    Flag{"--assume-template", &Options::assume_template, "", kAnswers | kServe, kInput,
         "use the Qwen3.6 chat format though the checkpoint's template is another"},
    Flag{"--preset", &Options::preset, "NAME", kSynth, kInput, "the shape, one of the presets above"},
    Flag{"--bits", &Options::bits, "N", kSynth | kQuantize, kInput, "bits of a weight: 2, 3, 4, 5, 6 or 8",
         one_of("2|3|4|5|6|8")},
    Flag{"--group-size", &Options::group_size, "N", kSynth | kQuantize, kInput,
         "weights that share a scale: 32, 64 or 128", one_of("32|64|128")},
    Flag{"--rules", &Options::rules, "P=N,...", kQuantize, kInput,
         "other bits, or bits:group, for modules whose path holds P (a shell pattern); the last match counts"},
    Flag{"--rounding", &Options::rounding, "HOW", kQuantize, kInput,
         "as MLX on Metal (metal: as published) or on the CPU (cpu) rounds exact ties", one_of("metal|cpu")},
    Flag{"--verify", &Options::verify, "", kInspect, kInput,
         "also compare every file's SHA-256 with SHA256SUMS or a hub's cache"},
    Flag{"--checksums", &Options::checksums, "F", kInspect, kInput, "compare with this file, as sha256sum writes it"},
    Flag{"--revision", &Options::revision, "R", kPull, kInput, "a branch, tag or commit"},
    Flag{"--seed", &Options::seed, "S", kSynth, kInput, "equal seeds give equal bytes [0]", at_least(0)},
    Flag{"--tokenizer-from", &Options::tokenizer_from, "MODEL", kSynth, kInput,
         "also copy this checkpoint's tokenizer and chat template"},

    Flag{"-n,--max-tokens", &Options::max_tokens, "N", kAnswers, kGeneration,
         "longest answer in tokens (0: as many as fit)", at_least(0)},
    Flag{"--temperature", &Options::temperature, "T", kAnswers, kGeneration,
         "0 is greedy [from the checkpoint]", from_to(0, 100)},
    Flag{"--top-p", &Options::top_p, "P", kAnswers, kGeneration,
         "sample from the likeliest tokens that hold this much probability [from the checkpoint]", from_to(0, 1)},
    Flag{"--top-k", &Options::top_k, "K", kAnswers, kGeneration,
         "sample from this many tokens (0: all) [from the checkpoint]", at_least(0)},
    Flag{"--min-p", &Options::min_p, "P", kAnswers, kGeneration,
         "drop tokens less likely than this part of the likeliest", from_to(0, 1)},
    Flag{"--presence-penalty", &Options::presence_penalty, "X", kAnswers, kGeneration,
         "subtract from tokens the answer holds", from_to(-2, 2)},
    Flag{"--frequency-penalty", &Options::frequency_penalty, "X", kAnswers, kGeneration,
         "subtract for each time the answer holds the token", from_to(-2, 2)},
    Flag{"--repetition-penalty", &Options::repetition_penalty, "X", kAnswers, kGeneration,
         "divide tokens that prompt or answer hold (1: off)", from_to(0.01, 100)},
    Flag{"--seed", &Options::seed, "S", kAnswers, kGeneration, "equal seeds give equal answers [random]",
         at_least(0)},
    Flag{"--ignore-eos", &Options::ignore_eos, "", kRun, kGeneration, "go on past the end of the answer"},

    Flag{"--print-ids", &Options::print_ids, "", kRun, kOutput, "print the answer's token ids instead of text"},
    Flag{"--json", &Options::json, "", kRun | kEval | kInspect | kTokenize | kDevices, kOutput,
         "print one JSON object"},
    Flag{"--out", &Options::out, "F.npy", kLogits | kTokenize, kOutput, "the file to write"},
    Flag{"--json", &Options::json_file, "F", kBench | kAblate, kOutput, "also write all that was measured as JSON"},
    Flag{"--csv", &Options::csv_file, "F", kBench, kOutput, "also write the table as CSV"},
    Flag{"--markdown", &Options::markdown_file, "F", kBench | kAblate, kOutput, "also write the table as Markdown"},
    Flag{"--svg", &Options::svg_file, "F", kBench, kOutput, "also draw the rates by context"},

    Flag{"--config", &Options::config_file, "F", kServe, kService,
         "read flags from this file, a line each: name = value; those given here count more"},
    Flag{"--print-config", &Options::print_config, "", kServe, kService,
         "print all flags as such a file, with the values they have, and exit"},
    Flag{"--host", &Options::host, "ADDRESS", kServe, kService, "address to listen on"},
    Flag{"--port", &Options::port, "N", kServe, kService, "port to listen on (0: any free one, which is printed)",
         from_to(0, 65535)},
    Flag{"--slots", &Options::slots, "N", kServe, kService, "requests that run at once", from_to(1, 1024)},
    Flag{"--kv-tokens", &Options::kv_tokens, "N", kServe, kService,
         "tokens that all running requests together may hold (0: --slots times --max-seq)", at_least(0)},
    Flag{"--max-queue", &Options::max_queue, "N", kServe, kService, "requests that may wait", at_least(0)},
    Flag{"--cache-file", &Options::cache_file, "F", kServe, kService,
         "keep the prefix cache in this file over restarts; it holds conversations"},
    Flag{"--request-timeout", &Options::request_timeout, "SECONDS", kServe, kService,
         "longest a request may take, waiting included (0: any time)", from_to(0, 604800)},
    Flag{"--drain-seconds", &Options::drain_seconds, "N", kServe, kService,
         "how long running answers may go on after SIGTERM", from_to(0, 86400)},
    Flag{"--alias", &Options::alias, "NAME,...", kServe, kService,
         "what clients call the model; answers say the first [the checkpoint's name]"},
    Flag{"--api-key-file", &Options::api_key_file, "F", kServe, kService, "ask for one of the keys in this file, one a line"},
    Flag{"--tls-cert", &Options::tls_cert, "F", kServe, kService,
         "speak HTTPS with the certificate in this PEM file, those that signed it behind it; needs --tls-key"},
    Flag{"--tls-key", &Options::tls_key, "F", kServe, kService, "its private key, in PEM and without passphrase"},
    Flag{"--allow-origin", &Options::allow_origin, "ORIGIN,...", kServe, kService,
         "web pages that may use the server, as https://chat.example, or * [its own]"},

    Flag{"--contexts", &Options::contexts, "N,N,...", kBench, kMeasurement,
         "prompt lengths [256,512,1024,2048,4096, as far as the model goes]", at_least(1)},
    Flag{"--contexts", &Options::contexts, "N,N,...", kAblate, kMeasurement, "prompt lengths [512]", at_least(1)},
    Flag{"--without", &Options::without, "NAME,...", kAblate, kMeasurement, "only these, of the names it prints [all]"},
    Flag{"--warm", &Options::warm, "N,N,...", kBench, kMeasurement,
         "also turns of so many new tokens behind --warm-context cached ones", at_least(1)},
    Flag{"--warm-context", &Options::warm_context, "N", kBench, kMeasurement, "cached tokens of --warm", at_least(1)},
    Flag{"--streams", &Options::streams, "N,N,...", kBench, kMeasurement,
         "also so many sequences at once, of --stream-context tokens each", from_to(1, 1024)},
    Flag{"--stream-context", &Options::stream_context, "N", kBench, kMeasurement, "prompt of each of --streams",
         at_least(1)},
    Flag{"--http", &Options::http, "URL", kBench, kMeasurement,
         "measure the server of OpenAI's API at this address in place of MODEL"},
    Flag{"--api-key-file", &Options::api_key_file, "F", kBench | kEval, kMeasurement, "the key that the server asks for"},
    Flag{"--decode", &Options::decode, "N", kBench | kAblate, kMeasurement, "timed steps after each prompt", at_least(1)},
    Flag{"--rounds", &Options::rounds, "N", kBench | kAblate, kMeasurement,
         "measurements of each length; medians are shown", from_to(1, 1000)},
    Flag{"--context", &Options::context, "N", kEval, kMeasurement, "tokens of a window", at_least(2)},
    Flag{"--against", &Options::against, "BACKEND|URL", kEval, kMeasurement,
         "also run this backend (cpu:exact for f32 activations), or ask this server of OpenAI's API, and report how far apart they are"},
    Flag{"--continue", &Options::continuation, "N", kEval, kMeasurement,
         "tokens by which the other side continues each of --prompts (0: none)", at_least(0)},
    Flag{"--against-model", &Options::against_model, "MODEL", kEval, kMeasurement,
         "the other side's checkpoint, of the same vocabulary"},

    Flag{"--connections", &Options::connections, "N", kPull, kMachine, "that fetch at once", from_to(1, 64)},
    Flag{"--backend", &Options::backend, "NAME", kEvery, kMachine,
         "auto, cpu, cuda, metal, metal-emulated or reference",
         one_of("auto|cpu|cuda|metal|metal-emulated|reference")},
    Flag{"--exact", &Options::exact, "", kEvery, kMachine, "f32 activations on the CPU, for quality checks"},
    Flag{"--threads", &Options::threads, "N", kEvery, kMachine, "CPU threads (0: all cores)", from_to(0, 4096)},
    Flag{"--isa", &Options::isa, "NAME", kEvery, kMachine, "CPU instructions: auto, generic, avx2, avx512, avx512bf16, amx or neon",
         one_of("auto|generic|avx2|avx512|avx512bf16|amx|neon")},
    Flag{"--pin", &Options::pin, "", kRunsModel, kMachine, "keep every CPU thread on its own core"},
    Flag{"--prefault", &Options::prefault, "", kRunsModel, kMachine,
         "map all of the checkpoint's pages before the first answer"},
    Flag{"--mlock", &Options::mlock, "", kRunsModel, kMachine,
         "and keep them in memory, whatever else runs (see ulimit -l)"},
    Flag{"--kv-type", &Options::kv_type, "TYPE", kRunsModel | kInspect, kMachine,
         "how K and V rows are kept: bf16, q8 (half of it), f32, or auto (bf16; f32 with --exact)",
         one_of("auto|f32|bf16|q8")},
    Flag{"--max-seq", &Options::max_seq, "N", kAnswers | kServe, kMachine,
         "tokens a conversation may hold (0: the model's limit, at most 32768; on a card what fits)", at_least(0)},
    Flag{"--cache-mib", &Options::cache_mib, "MIB", kChat | kServe, kMachine,
         "memory of the prefix cache, which spares prompts that begin alike (0: off)", from_to(0, 1 << 24)},
    Flag{"--chunk", &Options::chunk, "N", kAnswers | kServe | kBench | kAblate | kEval | kLogits, kMachine,
         "prompt tokens of a step (0: 512; 4096 on a card)", from_to(0, 65536)},
    Flag{"--log-level", &Options::log_level, "LEVEL", kEvery, kMachine, "debug, info, warn, error or off",
         one_of("debug|info|warn|error|off")},
};
// clang-format on

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}
std::span<const Flag> flags() {
  return kFlags;
}
std::string_view model_help() {
  return kModelHelp;
}

}  // namespace lily
