# Everything is in scripts/; run `make help`.
.PHONY: help run build test proof proof-cpu proof-gpu check-macos fmt
.DEFAULT_GOAL := help

PROMPT ?=
export PROMPT

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '  %-18s %s\n' "$$name" "$$what"; done

run: ## set up, build, import the starter model; opens the window, or answers PROMPT here
	@scripts/run

build: ## set up and build the release binaries, the app among them
	@scripts/build app

test: ## set up and run every check that a change must pass
	@scripts/test

proof: ## the long tier: tests too slow for make test; adds a line to docs/proofs.md
	@scripts/proof

proof-cpu: ## the CPU tier: inner loops under sanitizers and emulated for aarch64; adds lines to docs/proofs-cpu.md
	@scripts/proof-cpu

proof-gpu: ## the GPU tier, on a machine with an NVIDIA GPU; elsewhere says how to get there
	@scripts/proof-gpu

check-macos: ## type-check everything for macOS, from Linux
	@scripts/setup test
	@scripts/check-macos

fmt: ## format the Rust code
	@. scripts/lib.sh && cargo fmt --all
