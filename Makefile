# closeknit: `make demo` runs the main job, `make test` passes the tests. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# uv of the PATH, else a pinned one in .tools (a fresh machine has Python, make and a network).
UV_VERSION := 0.13.9
UV := $(shell command -v uv 2>/dev/null || echo .tools/uv/bin/uv)
RUN := $(UV) run --locked
HARNESS := PYTHONPATH=tests $(RUN) python -m
# Three processes share the tests file by file, in their order: the slow ones, which wait a lot, come first. Two used half
# of two cores (sampled in a full run, 2026-11-26).
PYTEST := $(RUN) pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][-a-z]*:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/uv/bin/uv:
	@echo "bringing uv $(UV_VERSION)" >&2
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "closeknit needs Python 3.11 or newer" >&2; exit 1; }
	@python3 -m venv .tools/uv 2>/dev/null || python3 -m venv --without-pip .tools/uv
	@if [ -x .tools/uv/bin/pip ]; then .tools/uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); \
	 else python3 -m pip install --quiet --prefix .tools/uv uv==$(UV_VERSION) || \
	  { echo "closeknit needs uv, or a Python that can bring it: install uv, or python3-venv" >&2; exit 1; }; fi

.PHONY: environment
environment: $(if $(findstring .tools,$(UV)),.tools/uv/bin/uv)
	@$(UV) sync --locked --quiet

.PHONY: control-plane
control-plane: environment
	@$(HARNESS) harness.build

.PHONY: node-programs
node-programs: environment
	@$(HARNESS) harness.node.projects

.PHONY: frameworks
frameworks: environment
	@$(HARNESS) harness.frameworks

.PHONY: cluster
cluster: control-plane ## Bring the test control plane once (some 9 min where it is built); KEEP=1 holds one open
	@if [ -n "$${KEEP:-}" ]; then $(HARNESS) harness.local_cluster; fi

.PHONY: demo
demo: control-plane ## Place three jobs on eight simulated GPU nodes of a real control plane; KEEP=1 leaves it up
	@$(HARNESS) harness.demo $(if $(KEEP),--keep)

.PHONY: test test-unit test-cluster test-node test-chart test-long
test: control-plane node-programs frameworks ## Everything that needs no special hardware
	@$(PYTEST) tests $(PYTEST_FLAGS)

test-unit: environment ## Pure code only: seconds
	@$(PYTEST) $(PYTEST_FLAGS)

test-cluster: control-plane ## On the real control plane
	@$(PYTEST) tests/cluster $(PYTEST_FLAGS)

test-node: control-plane node-programs frameworks ## On real kubelets, with what every rank saw; needs root
	@$(RUN) pytest tests/node -rP $(PYTEST_FLAGS)

test-chart: control-plane ## Chart: lint, schema, the API server's own opinion
	@$(RUN) pytest tests/chart $(PYTEST_FLAGS)

# The newest Kubernetes that tests run on beside the usual one; any of tests/harness/go/kubernetes-*.mod may be named:
# make test-cluster CLOSEKNIT_KUBERNETES=1.34
NEXT_KUBERNETES := 1.37

test-long: control-plane node-programs ## The long forms of the tests, too, and those of the control plane on the next Kubernetes
	@$(RUN) pytest tests --long $(PYTEST_FLAGS)
	@$(MAKE) --no-print-directory test-cluster test-chart CLOSEKNIT_KUBERNETES=$(NEXT_KUBERNETES)

.PHONY: check
check: environment ## ruff, mypy, layer contracts, generated files
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@PYTHONPATH=crds/src:operator/src:node-agent/src $(RUN) lint-imports --no-cache
	@$(RUN) python -m closeknit.api.crd --check
	@$(UV) lock --check --quiet

.PHONY: generate
generate: environment ## Write crds/, the chart's copies, tables and dashboards, docs/scenarios.md, docs/blame.md, tables of metrics, the code map and a PodSpec's fields
	@$(RUN) python -m closeknit.api.crd
	@$(HARNESS) harness.pod_fields
	@$(HARNESS) harness.code_map
	@$(HARNESS) harness.structure
	@$(HARNESS) harness.chart_values
	@$(HARNESS) harness.metrics_page
	@$(HARNESS) harness.dashboards
	@$(HARNESS) harness.answers_schema
	@$(HARNESS) harness.example_jobs
	@$(HARNESS) harness.transcripts
	@PYTHONPATH=tests $(RUN) python -m scenarios.index
	@PYTHONPATH=tests $(RUN) python -m scenarios.blame

.PHONY: privileges
privileges: control-plane ## Ask the API server what each identity may do, and write it to docs/security.md
	@$(HARNESS) harness.privileges

.PHONY: pictures
pictures: control-plane ## Draw the dashboards from a real Prometheus under load (5 min), into docs/pictures
	@$(HARNESS) harness.dashboard_pictures

.PHONY: bench-scale
bench-scale: environment ## One decision and one event on 5,000 and on 40,000 nodes: one JSON line
	@PYTHONPATH=tests $(RUN) python -m bench.scale

.PHONY: bench-answers
bench-answers: control-plane ## How soon commands answer at 5,000 nodes, and the map at 1,000: one JSON line
	@$(HARNESS) bench.answer_times

.PHONY: bench-map map-pictures
bench-map: environment ## What the web map costs at 1,000 nodes, 200 jobs and 50 open maps: one JSON line
	@$(HARNESS) bench.map_cost

map-pictures: environment ## Draw docs/map from made-up clusters, in the machine's Chromium
	@$(HARNESS) harness.map_pictures

.PHONY: bench-node-gpu bench-joint
bench-node-gpu: environment ## Which GPUs in one node, beside what others choose: docs/benchmarks.md and one JSON line
	@$(HARNESS) bench.node_gpu --write

bench-joint: environment ## Which node and GPUs together, beside node first, GPUs second: the same
	@$(HARNESS) bench.joint --write

.PHONY: bench-fabric
bench-fabric: environment ## Gangs under switches, near or waiting for it, beside what others do: the same
	@$(HARNESS) bench.fabric --write

.PHONY: bench-rankmap
bench-rankmap: environment ## Bytes that rank orders send across racks, beside the least there is: the same
	@$(HARNESS) bench.rankmap --write

.PHONY: bench-frag
bench-frag: environment ## GPUs that stay unused when more is asked for than there is, beside what others do: the same
	@$(HARNESS) bench.frag --write

.PHONY: bench-preemption
bench-preemption: environment ## Who ends for a job of higher priority, beside every choice there is: one JSON line
	@$(HARNESS) bench.preemption

.PHONY: bench-queue
bench-queue: environment ## The order of the queue on lists of public clusters, beside what others do (a quarter of an hour): the same
	@$(HARNESS) bench.queue_replay --write

.PHONY: bench-plan
bench-plan: environment ## closeknit plan on a 100-node file of real size: one JSON line
	@$(HARNESS) harness.bench_plan

.PHONY: bench-queue-depth
bench-queue-depth: environment ## What a thousand waiting jobs cost on 500 and on 5,000 nodes: one JSON line
	@$(HARNESS) bench.queue_depth

.PHONY: bench-waiting
bench-waiting: control-plane ## The operator's event loop on a real control plane while 1,000 jobs wait: one JSON line
	@$(HARNESS) bench.waiting_jobs

.PHONY: bench-scrape
bench-scrape: environment ## A scrape of the operator on 5,000 nodes with 1,000 jobs, its time and size: one JSON line
	@$(HARNESS) bench.scrape

.PHONY: bench-memory
bench-memory: environment ## What the operator weighs, by nodes, Pods and waiting jobs: docs/sizing.md and one JSON line
	@$(HARNESS) bench.memory --write

.PHONY: bench-own-http
bench-own-http: environment ## What our HTTP client and web server save beside aiohttp's: one JSON line
	@$(HARNESS) bench.own_http

.PHONY: bench-admission
bench-admission: control-plane ## A gang of 512 nodes from apply to its last bound Pod beside a bare client: one JSON line
	@$(HARNESS) bench.admission

.PHONY: images
images: environment ## Build the images of operator and agent with buildah, without a registry; say where they are, and their sizes
	@$(HARNESS) harness.images

.PHONY: walk
walk: control-plane node-programs ## What an administrator does with the installed chart, and how long each step takes; needs root
	@$(HARNESS) harness.node.walk

.PHONY: bench-recovery
bench-recovery: control-plane ## How soon closeknit is back after something has died (an hour and a half): one JSON line
	@$(HARNESS) bench.recovery

.PHONY: clean
clean: ## Remove what this folder's make has made (not the built control plane)
	@rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
