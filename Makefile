# Two commands do all the set-up on a machine that has Rust: `make run` and `make test`.
LISTEN ?= 127.0.0.1:7600

.PHONY: run test test-citus bench prerequisites

run: prerequisites ## Build, and serve on LISTEN with a private database
	cargo build --release
	./target/release/callgate serve --listen $(LISTEN) $(ARGS)

test: prerequisites ## The whole test suite
	@if cargo nextest --version >/dev/null 2>&1; then \
		echo cargo nextest run; cargo nextest run; \
	else \
		echo cargo test; cargo test; \
	fi

test-citus: prerequisites ## The tests of the store, the service and faults on a Citus cluster, where Citus is installed
	@deploy/citus/test

bench: prerequisites ## Figures: the engine alone, and pairs beside yardsticks (ARGS='--preset show': all cases)
	cargo bench --bench engine
	cargo build --release
	./target/release/callgate bench $(ARGS)

prerequisites:
	@deploy/install-postgres.sh
