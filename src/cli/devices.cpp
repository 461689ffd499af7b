// lily devices: which backends work here, and why the others do not.
#include <array>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/machine.h"

namespace lily {
namespace {

constexpr std::array kBackends = {"cuda", "metal", "metal-emulated", "cpu", "reference"};

struct BackendState {
  std::string name;
  bool works = false;
  std::string detail;  // what it says of itself, or why it does not work
};

// Tries each backend on the smallest possible load, which is what says most surely whether it works.
std::vector<BackendState> try_backends(const ModelWeights& weights, const Options& options) {
  std::vector<BackendState> states;
  for (const char* name : kBackends) {
    BackendOptions backend = model_options(options).backend;
    backend.name = name;
    const auto made = make_backend(backend, weights, {.kv_pages = 1, .slots = 1, .max_rows = 1});
    states.push_back({name, made.ok(), made.ok() ? (*made)->description() : made.error().message});
  }
  return states;
}

std::string format_text(const Machine& machine, const std::vector<BackendState>& backends) {
  std::string text = machine_text(machine) + "\n";
  for (const BackendState& backend : backends) {
    text += fmt::format("{:<16}{:<5}{}\n", backend.name, backend.works ? "yes" : "no", backend.detail);
  }
  return text;
}

std::string format_json(const Machine& machine, const std::vector<BackendState>& backends) {
  nlohmann::ordered_json json = {{"system", machine.system},
                                 {"cpu", machine.cpu},
                                 {"threads", machine.threads},
                                 {"memory_bytes", static_cast<std::int64_t>(machine.memory)}};
  for (const BackendState& backend : backends) {
    json["backends"].push_back(
        {{"name", backend.name}, {"works", backend.works}, {"detail", backend.detail}});
  }
  return json_line(json);
}

}  // namespace

Result<void> run_devices(const Options& options) {
  LILY_TRY(const auto files, ModelFiles::open("tiny"));
  LILY_TRY(Checkpoint checkpoint, Checkpoint::open(files));
  LILY_TRY(const ModelWeights weights, load_weights(checkpoint));
  const auto backends = try_backends(weights, options);
  const Machine machine = this_machine();
  return console::print(options.json ? format_json(machine, backends) : format_text(machine, backends));
}

}  // namespace lily
