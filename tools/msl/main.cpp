// msl: the steps between a .metal file and what the executor runs. Called by the build (cmake/metal.cmake).
//
//   msl flatten SOURCE.metal -o OUT.metal [-I FOLDER]...
//   msl run|check PREPROCESSED -o OUT --table NAME
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "flatten.h"
#include "translate.h"

namespace {

using namespace lily;

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fmt::print(stderr, "{}: cannot be written\n", path);
  return static_cast<bool>(file);
}

int report(const Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  return 1;
}

int translate_file(const std::string& source, const std::string& out, msl::Target target,
                   const std::string& table) {
  const auto text = msl::read_text(source);
  if (!text.ok()) return report(text.error());
  const msl::Translation translation = msl::translate(*text, target, table);
  for (const std::string& problem : translation.problems) fmt::print(stderr, "{}\n", problem);
  return translation.problems.empty() && write(out, translation.text) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Metal sources for the executor");
  std::string source;
  std::string out;
  std::string table;
  std::vector<std::filesystem::path> folders;
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("source", source)->required();
    command->add_option("-o", out)->required();
    return command;
  };
  CLI::App* flatten = add("flatten", "project headers included");
  flatten->add_option("-I", folders, "where headers are looked for");
  CLI::App* run = add("run", "C++ for the executor");
  run->add_option("--table", table)->required();
  add("check", "C++ for OpenCL");
  CLI11_PARSE(app, argc, argv);

  if (flatten->parsed()) {
    const auto text = msl::flatten(source, folders);
    return text.ok() ? (write(out, *text) ? 0 : 1) : report(text.error());
  }
  return translate_file(source, out, run->parsed() ? msl::Target::kRun : msl::Target::kCheck, table);
}
