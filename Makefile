# Each target is one command; what needs more lives in scripts/.
.PHONY: help run build test check fmt fmt-check lint doc schema schema-check bench bench-slow release

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

run: ## Build, start a gateway in run/, and let a simulated fleet upload to it until Ctrl-C
	@scripts/run.sh

build: ## Build the binary for development
	cargo build --locked

test: ## All tests; installs what they need
	@scripts/setup-test.sh
	cargo test --locked

check: fmt-check lint doc schema-check test ## Everything a merge needs

fmt: ## Format the code
	cargo fmt

fmt-check:
	cargo fmt --check

lint: ## Lints, warnings denied
	@scripts/setup-test.sh
	cargo clippy --locked --all-targets -- -D warnings

doc: ## API documentation, warnings denied
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items

schema: ## Write the generated files anew
	UPDATE_SCHEMA=1 cargo test --locked generated

schema-check: ## The generated files are what the code generates
	@scripts/check-generated.sh

bench: ## End-to-end benchmark against two baselines (minutes; not in CI)
	cargo bench --locked --bench gateway

bench-slow: ## 5,000 slow uploads at once, with two bars (minutes; not in CI)
	cargo bench --locked --bench slow

release: ## Build the optimised binary
	cargo build --locked --release
