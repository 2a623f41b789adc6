# Every target sets up .venv by itself; only python3 (3.11+) and make are needed.
PYTHON ?= python3
BIN := .venv/bin
# Shapes written in signatures are checked while tests run.
CHECKED := --jaxtyping-packages=lambdanets,beartype.beartype

.PHONY: demo test test-matrix sweep sanitise endure bench lint docs format env clean

demo: env
	$(BIN)/lambdanets train digits
	$(BIN)/python examples/digit_image.py runs/digit.png
	$(BIN)/lambdanets predict latest runs/digit.png

test: env
	$(BIN)/pytest -q -n 2 -m "not unchecked" $(CHECKED)
	$(BIN)/pytest -q -n 2 -m unchecked tests
	$(BIN)/python tools/test_matrix.py --quick

# Minutes: the kernel, ops and nn tests with every instruction set of this machine, without kernels, and on one core.
test-matrix: env
	$(BIN)/python tools/test_matrix.py

# Hours instead of minutes: new random cases every time, many more of them, complete Jacobians, every network exported.
sweep: env
	LAMBDANETS_SWEEP=1 $(BIN)/pytest -q -n 2 -m "not unchecked" $(CHECKED) tests
	LAMBDANETS_SWEEP=1 $(BIN)/pytest -q -n 2 -m unchecked tests

# Minutes: the kernels under the address and undefined behaviour sanitisers, on random problems of every shape.
sanitise: env
	$(BIN)/python tools/sanitise_kernels.py --cases 10000

# Minutes: runs killed at random moments and resumed, checkpoints damaged in a thousand ways, images cut short.
endure: env
	$(BIN)/python tools/endure.py

bench: env
	$(BIN)/lambdanets bench layers

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: env
	$(BIN)/pdoc --docformat google --output-directory docs/api lambdanets lambdanets.ops.reference
	@echo "the API reference is docs/api/index.html"

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

env:
	@$(PYTHON) tools/environment.py

clean:
	rm -rf .venv .venv.lock docs/api build dist
