# For a bare machine that has Python 3.10 or newer and make:
#   make migrate                 port a copy of the example plugin (MODELS=path for your own, TARGET=0.32 for one vLLM)
#   make check                   the same, and prove the port under a real vLLM (VLLM_PYTHON=its python; else one is made, about 6 GB)
#   make notebooks               guided walks in JupyterLab (VLLM_PYTHON=a python with a vLLM and JupyterLab, for those that run models)
#   make demo                    a page that draws pictures and talks about them, offline (VLLM_PYTHON=a python with a vLLM and Gradio; DEMO=options)
#   make test                    every check of this project
# and one for those who want the tests that need a real vLLM (about 6 GB, made once):
#   make vllm

MODELS = examples/orchard_vl_plugin
TARGET =
VLLM_PYTHON =
JUPYTER =
DEMO =
export MODELS TARGET VLLM_PYTHON JUPYTER DEMO

VENV = .venv
MIGRATED = build/migrated

# The first interpreter that can make an environment. A shim that only says "not found" and a Python without ensurepip fail here.
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 \
		&& { echo "$$python"; break; }; done)

.PHONY: help migrate check notebooks demo test vllm clean
.DEFAULT_GOAL := help
# An environment whose making was broken off is made anew.
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

# The difference first, then the port itself: its report, its errors and its exit code are the ones that count.
# Which files of a plugin are reached only a copy of the whole plugin tells: VA662 is left out of others.
migrate: $(VENV)/.base
	@set -eu; \
	fail() { echo "make migrate: $$1" >&2; exit 2; }; \
	line() { printf '%s\n' "$$said" | sed -n "$$1p"; }; \
	said=$$($(VENV)/bin/python -m codemods.working_copy -- "$$MODELS" "$(MIGRATED)") || fail "$$said"; \
	place=$$(line 1); report=$$(line 2); kept=$$(line 3); copy=$${report%.report.md}; \
	set -- "$$place" $${TARGET:+--target "$$TARGET"}; \
	[ -e "$$copy/pyproject.toml" ] || [ -e "$$copy/setup.py" ] || [ -e "$$copy/setup.cfg" ] || set -- "$$@" --ignore VA662; \
	$(VENV)/bin/python -m codemods.migrate "$$@" --diff --quiet 2>/dev/null || true; \
	status=0; $(VENV)/bin/python -m codemods.migrate "$$@" --report "$$report" || status=$$?; \
	[ -z "$$kept" ] || echo "$$kept"; \
	case $$status in \
		0) echo "Ported copy: $$place, its report: $$report. Nothing is left to do by hand.";; \
		1) echo "Ported copy: $$place, its report: $$report. FINDINGS REMAIN: the lines reported above need a person.";; \
		*) fail "not everything in $$place was ported, see the error above";; \
	esac

# Ported for the vLLM that proves it. What the port leaves to a person is no reason not to look at the rest.
check: $(VENV)/.test
	@set -eu; \
	fail() { echo "make check: $$1" >&2; exit 2; }; \
	python="$$VLLM_PYTHON"; [ -n "$$python" ] || python="$$($(VENV)/bin/python -m tests.wheels)/bin/python"; \
	release=$$(PYTHONPATH=. "$$python" -c 'from codemods import vllm_api; print(vllm_api.installed() or "")'); \
	[ -n "$$release" ] || fail "no vLLM in $$python; give one with VLLM_PYTHON=PATH"; \
	said=$$($(VENV)/bin/python -m codemods.working_copy --where -- "$$MODELS" "$(MIGRATED)") || fail "$$said"; \
	place=$$(printf '%s\n' "$$said" | sed -n 1p); report=$$(printf '%s\n' "$$said" | sed -n 2p); \
	$(MAKE) --no-print-directory migrate TARGET="$$release" || [ -e "$$report" ] || exit 2; \
	PYTHONPATH=. "$$python" -m porting.check "$$place" --before "$$MODELS" --report "$${report%.report.md}.check.html"

# Kernels run under the Python that runs JupyterLab: one with a vLLM where there is one, else that of $(VENV).
notebooks:
	@set -eu; \
	fail() { echo "make notebooks: $$1" >&2; exit 2; }; \
	python="$$VLLM_PYTHON"; \
	if [ -z "$$python" ]; then \
		$(MAKE) --no-print-directory $(VENV)/.notebooks; \
		python="$$($(VENV)/bin/python -m tests.wheels --made 2>/dev/null)" || python="$(VENV)/bin/python"; \
	fi; \
	PYTHONPATH=. "$$python" -c 'import ipywidgets, jupyterlab, libcst' 2>/dev/null \
		|| fail "$$python has no JupyterLab; give it one with: $$python -m pip install -e '.[notebooks]'"; \
	"$$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("vllm") is None)' \
		|| echo "No vLLM here: notebooks that run models need one. Build one with make vllm, or give VLLM_PYTHON=PATH."; \
	set -- --ServerApp.root_dir=. --ip=127.0.0.1 --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate; \
	[ "$$(id -u)" != 0 ] || set -- "$$@" --allow-root; \
	PYTHONPATH="$$PWD" exec "$$python" -m jupyterlab "$$@" notebooks/00_start_here.ipynb $$JUPYTER

# Where there is a vLLM beside Gradio, the page also compares the example plugin's towers: so what `make vllm` made is
# taken where it is there, unless it lacks what the demo needs.
demo:
	@set -eu; \
	fail() { echo "make demo: $$1" >&2; exit 2; }; \
	python="$$VLLM_PYTHON"; \
	needs='import diffusers, gradio, libcst'; \
	if [ -z "$$python" ] && made="$$($(VENV)/bin/python -m tests.wheels --made 2>/dev/null)" \
		&& PYTHONPATH=. "$$made" -c "$$needs" 2>/dev/null; then \
		python="$$made"; \
	elif [ -z "$$python" ]; then \
		$(MAKE) --no-print-directory $(VENV)/.demo; \
		python="$(VENV)/bin/python"; \
	fi; \
	PYTHONPATH=. "$$python" -c "$$needs" 2>/dev/null \
		|| fail "$$python cannot run the demo; give it what it needs with: $$python -m pip install -e '.[demo]'"; \
	PYTHONPATH="$$PWD" exec "$$python" -m demo_app $$DEMO

test: $(VENV)/.test
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/python -m pytest -n auto --dist worksteal --ignore tests/porting --ignore tests/demo_app --ignore tests/notebooks
	$(VENV)/bin/python -m tests.under_vllm

vllm: $(VENV)/.test
	$(VENV)/bin/python -m tests.wheels

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.base: pyproject.toml $(VENV)/bin/python
	@echo "Installing vitport into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.notebooks: pyproject.toml $(VENV)/bin/python
	@echo "Installing vitport and JupyterLab into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[notebooks]'
	@touch $@ $(VENV)/.base

# The usual torch for Linux brings CUDA's libraries, several gigabytes; uv knows where those without are, if it gets there.
$(VENV)/.demo: pyproject.toml $(VENV)/bin/python
	@echo "Installing vitport and its demo into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(VENV)/bin/python -m uv pip install --quiet --python $(VENV)/bin/python --torch-backend cpu --editable '.[demo]' 2>/dev/null \
		|| $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@ $(VENV)/.base

$(VENV)/.test: pyproject.toml $(VENV)/bin/python
	@echo "Installing vitport and its test tools into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.base

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "make: no Python 3.10 or newer with venv and ensurepip found; install one (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
