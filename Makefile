# The front door. Each target says what it does; the work is in cmake and scripts/.
BUILD ?= build/release
JOBS  ?= $(shell nproc)
FUZZ_SECONDS ?= 60

.PHONY: help setup setup-dev setup-browser build test test-aarch64 demo bench cuda parity soak sanitize fuzz format lint clean

help:            ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup:           ## install what building and testing needs (Debian packages, asks nothing)
	scripts/setup

setup-dev:       ## and what formatting, linting and fuzzing need
	scripts/setup --dev

setup-browser:   ## and Chromium, to test the web chat
	scripts/setup --browser

build:           ## the release binary and the tests: build/release/lily
	cmake --preset release
	cmake --build $(BUILD) -j $(JOBS)

test: build      ## all tests
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

demo:            ## build, serve the embedded model, ask it something, stream the answer
	cmake --preset release
	cmake --build $(BUILD) -j $(JOBS) --target lily
	scripts/demo $(BUILD)/lily

bench: build     ## speed of the embedded model on this machine
	$(BUILD)/lily bench tiny

cuda:            ## lily with the NVIDIA backend: build/cuda/lily; says 'skipped' without nvcc
	JOBS=$(JOBS) scripts/build-cuda lily cuda_backend_test golden_test

parity: build    ## compare with the reference stack from PyPI, where it is installed
	scripts/parity $(BUILD)

test-aarch64:    ## the kernels for 64-bit ARM, cross-compiled and run under qemu; says 'skipped' without the tools
	scripts/test-aarch64 $(JOBS)

soak: build      ## ten thousand mixed requests against the embedded model: ten minutes
	LILY=$(BUILD)/lily python3 tests/api/soak.py 10000 1 tiny

sanitize:        ## all tests under address+undefined and under thread sanitizers
	scripts/sanitize

fuzz:            ## every fuzz target for FUZZ_SECONDS
	scripts/fuzz $(FUZZ_SECONDS)

format:          ## clang-format every source
	git ls-files '*.cpp' '*.h' | xargs clang-format-19 -i

lint:            ## clang-format check, then clang-tidy
	scripts/lint

clean:           ## remove build/
	rm -rf build
