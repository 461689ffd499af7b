# Homebrew formula. Before a release is published: `brew install --HEAD --formula packaging/homebrew/lily.rb` in a checkout, whose
# HEAD it builds.
class Lily < Formula
  desc "Inference engine for Qwen3.5 and Qwen3.6 mixture-of-experts models"
  homepage "https://huggingface.co/mlx-community/Qwen3.6-35B-A3B-4bit"
  license "Apache-2.0"
  head "file://#{Pathname(__FILE__).realpath.dirname.parent.parent}", using: :git, branch: "main"

  depends_on "boost" => :build
  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on arch: :arm64
  depends_on "fmt"
  depends_on "libedit"
  depends_on macos: :sequoia # residency sets and Metal's math modes
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "spdlog"
  depends_on "utf8proc"
  depends_on "xxhash"

  uses_from_macos "curl"

  def install
    # The web chat's libraries are Debian packages; the API is served without it.
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DLILY_TESTS=OFF", "-DLILY_PAGE=OFF", *std_cmake_args
    system "cmake", "--build", "build", "--target", "lily"
    bin.install "build/lily"
  end

  test do
    assert_match "ok", shell_output("#{bin}/lily selftest --backend cpu --exact")
  end
end
