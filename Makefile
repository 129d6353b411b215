# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of Skep

# `make help` lists the targets. Only Go, make, gcc (for the race detector) and git are
# needed; tools are pinned in cmd/tools and built by Go.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One thing at a time: Go keeps all cores busy by itself.
.NOTPARALLEL:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -ldflags='-X main.version=$(VERSION)'

# Binaries are a folder with a main.go each; what is no module of its own.
BINARIES := $(patsubst cmd/%/main.go,%,$(wildcard cmd/operator*/main.go))
# Modules beside the root module.
MODULES := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './bin/*'))
# Those whose tests read files outside of their module, or run programs that they do not
# import: Go's cache of results does not know of these.
UNCACHED_MODULES := deploy cmd/graphdraw cmd/tools
TOOL := go tool -modfile=$(CURDIR)/cmd/tools/go.mod

# Packages whose tests use the real control plane, each one of its own: two at a time, of
# which each waits most of its time, and the longest first.
CLUSTER_PACKAGES = $(shell grep -rl --include='*_test.go' 'skep/resources/clustertest"' cells cmd/demo cmd/operator resources docs | xargs -n1 dirname | sort -u | sed 's,^,./,') ./resources/clustertest
# Packages of them that run programs which they do not import; see UNCACHED_MODULES.
UNCACHED_PACKAGES = $(filter ./cmd/demo ./cmd/demo/%,$(sort $(CLUSTER_PACKAGES)))
# Packages with tests that the race detector distorts, and that skip themselves under it.
PLAIN_PACKAGES = $(shell grep -rlE --include='*_test.go' '\bRaceEnabled\b' cells resources runtime | xargs -n1 dirname | sort -u | sed 's,^,./,')

# Packages with benchmarks.
BENCH_PACKAGES = $(shell grep -rl --include='*_test.go' '^func Benchmark' cells resources runtime | xargs -n1 dirname | sort -u | sed 's,^,./,')

LICENSES := Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT

# $(call step,what is done) before the commands of a recipe, which are one shell; $(took)
# after them.
step = @printf '==> %s\n' '$(1)';
took = ; echo "    $$SECONDS s"

# How often a test that failed runs again, alone; RERUNS=0 does without. Not after a data
# race, a panic or a time-out, and not when more than five have failed.
RERUNS ?= 2
FLAKY := $(CURDIR)/bin/flaky
rerun = $(if $(filter-out 0,$(RERUNS)),--rerun-fails=$(RERUNS) --rerun-fails-max-failures=5 \
	--rerun-fails-abort-on-data-race --rerun-fails-report=$(FLAKY)/$(1).txt)

# $(call tests,name of the run,flags,packages) is go test, which keeps its events in bin/flaky
# under that name. The inner shell has no arguments at first; a rerun is told the test and its
# package, and takes nothing from Go's cache of results (--packages could not say so). What
# gotestsum forgives and should not is red by the last command. Some tests read the whole tree
# but bin/ and .git; Go keeps their results by the times of these folders, too, which therefore
# stay the same.
tests = mkdir -p $(FLAKY); rm -f $(FLAKY)/$(1).json $(FLAKY)/$(1).txt; touch -ch -d @1000000000 $(CURDIR)/bin $(CURDIR)/.git; \
	$(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --no-color --hide-summary=skipped \
		--jsonfile $(FLAKY)/$(1).json $(rerun) --raw-command -- \
		bash -c 'if [ "$$1" ]; then set -- -count=1 "$$@"; else set -- $(3); fi; exec go test -json $(2) "$$@"' tests | \
	sed -u -e 's/^✓  /ok  \t/' -e 's/^✖  /FAIL\t/'; \
	go run -C $(CURDIR)/cmd/tools ./flaky -judge $(FLAKY)/$(1).json

$(shell mkdir -p bin)

##@ Run

.PHONY: run
run: build ## Run the operator in a small real cluster and show what it does; ARGS='--flag=…' go to the operator
	@bin/demo -- $(ARGS)

.PHONY: build
build: ## Build the operators, and graphdraw and demo beside them, into bin/
	$(call step,Building $(BINARIES) graphdraw demo) \
	for name in $(BINARIES) demo; do go build $(LDFLAGS) -o bin/$$name ./cmd/$$name; done; \
	go build -C cmd/graphdraw -o $(CURDIR)/bin/graphdraw . $(took)

.PHONY: devcluster
devcluster: ## Build the control plane of tests; the first build compiles Kubernetes and takes minutes
	$(call step,Building the control plane; the first build compiles Kubernetes and takes 3 to 10 minutes) \
	go build $(LDFLAGS) -o bin/demo ./cmd/demo; bin/demo -build $(took)

##@ Ship

# What an image is made for, by Go's names.
PLATFORMS := linux-amd64 linux-arm64
IMAGE_LDFLAGS := -ldflags='-s -w -X main.version=$(VERSION)'

.PHONY: image
image: ## Build the container image for all platforms into bin/image/oci, and run it; needs no container engine
	$(call step,Building static operators for $(PLATFORMS); the first time takes minutes) \
	rm -rf bin/image; \
	for platform in $(PLATFORMS); do for name in $(BINARIES); do \
		CGO_ENABLED=0 GOOS=$${platform%-*} GOARCH=$${platform#*-} go build -trimpath $(IMAGE_LDFLAGS) -o bin/image/programs/$$platform/$$name ./cmd/$$name; \
	done; done $(took)
	$(call step,Collecting licences) \
	$(TOOL) go-licenses save $(addprefix ./cmd/,$(BINARIES)) --save_path=bin/image/licenses 2>bin/.licenses.log || { cat bin/.licenses.log; exit 1; }; \
	cp LICENSE bin/image/licenses/ $(took)
	$(call step,Assembling bin/image/oci) \
	go run -C cmd/tools ./image -programs $(CURDIR)/bin/image/programs -licenses $(CURDIR)/bin/image/licenses \
		-version '$(VERSION)' -revision "$$(git rev-parse HEAD 2>/dev/null || true)" \
		-created "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" $(CURDIR)/bin/image/oci $(took)
	$(call step,Running it with a read-only root; as root only) \
	SKEP_IMAGE=$(CURDIR)/bin/image/oci SKEP_IMAGE_VERSION='$(VERSION)' go test -C cmd/tools ./image -count=1 -run '^TestImage$$' -v | grep -E '^ *(---|ok|FAIL|[a-z_]+\.go:)' $(took)

.PHONY: image-push
image-push: ## Push what make image made: IMAGE=registry.example/skep:tag
	@[ -n '$(IMAGE)' ] || { echo 'say where to: make image-push IMAGE=registry.example/skep:tag'; exit 1; }; \
	[ -d bin/image/oci ] || { echo 'there is no image: run make image'; exit 1; }; \
	$(TOOL) crane push bin/image/oci '$(IMAGE)'

##@ Test

.PHONY: unit
unit: ## The inner loop: tests that need no control plane
	$(call step,Unit tests) go test -short ./... | (grep -v 'no test files' || true) $(took)

.PHONY: test
test: tree-before build devcluster lint licenses generated race cluster plain modules tree-after flaky ## Everything: this is what CI runs; up to 40 minutes the first time; RERUNS=0 runs no failed test again
	@echo "==> All tests passed"

.PHONY: race
race: ## Unit and script tests under the race detector
	$(call step,Unit and script tests under the race detector; the first time compiles for minutes) \
	$(call tests,race,-race -short,./...) $(took)

.PHONY: cluster
cluster: devcluster ## Tests on the real control plane, under the race detector
	$(call step,Tests on the real control plane) \
	$(call tests,cluster,-race -p 2 -timeout 40m,./cmd/operator $(filter-out ./cmd/operator $(UNCACHED_PACKAGES),$(sort $(CLUSTER_PACKAGES)))); \
	$(call tests,cluster-demo,-race -p 2 -timeout 40m -count=1,$(UNCACHED_PACKAGES)) $(took)

.PHONY: plain
plain: ## Tests of memory, allocations and long histories, without the race detector, and each benchmark once
	$(call step,Budgets and long histories; each benchmark once) \
	go test -p 1 $(PLAIN_PACKAGES); \
	go test -p 1 -short -run '^$$' -bench . -benchtime 1x $(BENCH_PACKAGES) | (grep -Ev '^(ok|PASS|goos|goarch|pkg|cpu)' || true) $(took)

.PHONY: modules
modules: ## Tests of the other modules of the repository
	$(call step,Tests of other modules: $(MODULES)) \
	$(foreach dir,$(MODULES),echo '--- $(dir)'; cd $(CURDIR)/$(dir); \
		$(call tests,modules-$(subst /,-,$(dir)),$(if $(filter $(dir),$(UNCACHED_MODULES)),-count=1),./...); \
		benchmarks=$$( (grep -rl --include='*_test.go' '^func Benchmark' . || true) | xargs -r -n1 dirname | sort -u); \
		[ -z "$$benchmarks" ] || go test -run '^$$' -bench . -benchtime 1x $$benchmarks | (grep -E '^(Benchmark|---|FAIL|panic)' || true);) \
	true $(took)

.PHONY: flaky
flaky: ## Which tests of race, cluster and modules passed only when they ran again; more than three are red
	@rm -f bin/flaky/*.log; mkdir -p bin/flaky; go build -C cmd/tools -o $(CURDIR)/bin/.flaky ./flaky; bin/.flaky -max 3 bin/flaky

.PHONY: soak
soak: devcluster ## The long forms of the tests on the control plane, in random order: SOAK=3 times
	$(call step,Soaking) SKEP_SOAK=1 go test -race -p 1 -count $(or $(SOAK),1) -shuffle on -timeout 0 $(sort $(CLUSTER_PACKAGES)) $(took)

.PHONY: bench
bench: ## Measure beside peers, against the budgets; ARGS='-run … -rounds …'
	@go run -C cmd/bench . $(ARGS)

.PHONY: bench-cluster
bench-cluster: build devcluster ## Measure whole operators on a loaded control plane: SIZE=S, M or L; ARGS='-rounds …'
	@go run -C cmd/bench ./cluster -size $(or $(SIZE),M) $(ARGS)

##@ Check

.PHONY: check
check: lint licenses vulnerabilities generated ## All checks that run no tests

.PHONY: lint
lint: ## gofmt, go vet and staticcheck, in every module
	$(call step,gofmt) files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted: run gofmt -w" $$files; exit 1; } $(took)
	$(call step,go vet and staticcheck; the first time compiles them) \
	for dir in . $(MODULES); do echo "--- $$dir"; ( cd $$dir; go vet ./...; $(TOOL) staticcheck ./... ); done $(took)

.PHONY: licenses
licenses: ## What is linked into the operators has a licence of the short list
	$(call step,Licences: $(LICENSES)) \
	$(TOOL) go-licenses check --allowed_licenses=$(LICENSES) $(addprefix ./cmd/,$(BINARIES)) 2>bin/.licenses.log || { cat bin/.licenses.log; exit 1; } $(took)

.PHONY: vulnerabilities
vulnerabilities: ## Known vulnerabilities in code that the operators reach; asks vuln.go.dev
	$(call step,govulncheck) \
	if ! $(TOOL) govulncheck $(addprefix ./cmd/,$(BINARIES)) >bin/.vulnerabilities.log 2>&1; then \
		cat bin/.vulnerabilities.log; \
		grep -qE 'no such host|dial tcp|connection refused|timeout' bin/.vulnerabilities.log || exit 1; \
		echo "NOT CHECKED: the database of vulnerabilities cannot be reached; GOVULNDB=URL names another"; \
	fi $(took)

.PHONY: generated
generated: ## What is generated is up to date; looks at a copy, and leaves the tree as it is
	$(call step,Generating in a copy of the tree and comparing) \
	copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	tar -cf - --exclude=./.git --exclude=./bin . | tar -xf - -C "$$copy"; \
	cp -R "$$copy" "$$copy.before"; trap 'rm -rf "$$copy" "$$copy.before"' EXIT; \
	$(MAKE) --no-print-directory -C "$$copy" generate >bin/.generate.log 2>&1 || { cat bin/.generate.log; exit 1; }; \
	diff -rq --exclude=bin "$$copy.before" "$$copy" || { echo "out of date: run make generate"; exit 1; } $(took)

.PHONY: tree-before tree-after
tree-before:
	@rm -rf bin/flaky; git status --porcelain >bin/.tree 2>/dev/null || true
tree-after:
	$(call step,The tests left the tree as it was) \
	git status --porcelain 2>/dev/null | diff bin/.tree - || { echo "the tests have changed these files"; exit 1; }

##@ Change

.PHONY: generate
generate: build ## Write what is generated: deep copies, definitions, tables and pictures of the documents
	$(call step,Generating) go generate ./... ./testdata/benchcells; \
	go test -count=1 ./docs -run TestReadme -update; \
	{ echo '# Written by make generate: this is what `operator rbac` prints. Do not edit.'; bin/operator rbac; } >deploy/manifests/clusterrole.yaml; \
	{ printf '%s\n' '# Written by make generate from rules.yaml. Do not edit.' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
		'metadata:' '  name: cilium-operator' '  namespace: kube-system' 'spec:'; sed 's/^./  &/' deploy/monitoring/rules.yaml; } >deploy/monitoring/prometheusrule.yaml; \
	bin/operator graph -o svg >docs/pictures/graph.svg $(took)

.PHONY: clean
clean: ## Remove bin/; Go's own cache stays
	rm -rf bin

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
