# Two commands do all the set-up on a machine that has Rust: `make run` and `make test`.
LISTEN ?= 127.0.0.1:7600

.PHONY: run test bench prerequisites

run: prerequisites ## Build, and serve on LISTEN with a private database
	cargo build --release
	./target/release/callgate serve --listen $(LISTEN) $(ARGS)

test: prerequisites ## The whole test suite
	@if cargo nextest --version >/dev/null 2>&1; then \
		echo cargo nextest run; cargo nextest run; \
	else \
		echo cargo test; cargo test; \
	fi

bench: prerequisites ## Figures: the engine alone, and pairs beside yardsticks (ARGS='--preset show': all cases)
	cargo bench --bench engine
	cargo build --release
	./target/release/callgate bench $(ARGS)

prerequisites:
	@deploy/install-postgres.sh
