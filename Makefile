# Two commands for a fresh clone: `make demo` and `make test`. Everything happens in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# torch's CUDA build requires this Triton; the CPU build requires none, so it is pinned for both
TORCH  := torch==2.13.0 triton==3.7.1

export LITELLM_LOCAL_MODEL_COST_MAP := True
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO := 0

.PHONY: demo test lint types contracts wheel versions figures clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check $(TORCH)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]' $(TORCH)
	touch $@

demo: $(VENV)/.installed
	$(BIN)/evolve run softmax --preset demo --archive evolve-out/demo.duckdb --out evolve-out/demo
	$(BIN)/evolve best softmax --archive evolve-out/demo.duckdb
	@echo "open evolve-out/demo/report.html"

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

contracts: $(VENV)/.installed
	$(BIN)/lint-imports

wheel: $(VENV)/.installed
	$(PYTHON) .ci/check_wheel.py $(BIN)/python

versions: $(VENV)/.installed
	.ci/triton_versions $(BIN)/python

# what needs a quiet machine with many cores: archive, scale, kill -9, hostile candidates, clusters (some need root)
figures: $(VENV)/.installed
	$(BIN)/python -m benchmarks.quiet --out evolve-out/figures

clean:
	rm -rf $(VENV) dist build *.egg-info
