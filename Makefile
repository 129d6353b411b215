# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of Skep

# `make help` lists the targets. Only Go, make, gcc (for the race detector) and git are
# needed; tools are pinned in cmd/tools and built by Go.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One thing at a time: Go keeps most cores busy by itself. `test` alone says what may run side by side.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -ldflags='-X main.version=$(VERSION)'
# Without gRPC's pages about its requests, which nothing serves, programs do without text/template.
# It calls methods by their names, so that the linker keeps all exported methods of all libraries.
PROGRAM := -tags=grpcnotrace
# $(call no_templates,program) fails where text/template is back.
no_templates = ! grep -qaF 'text/template.(*state).evalField' $(1) || { \
	echo '$(1) calls text/template and with it has every exported method of its libraries;'; \
	echo 'go build $(PROGRAM) -ldflags=-dumpdep shows by which call'; exit 1; }

# Binaries are a folder with a main.go each; what is no module of its own.
BINARIES := $(patsubst cmd/%/main.go,%,$(wildcard cmd/operator*/main.go))
# Modules beside the root module.
MODULES := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './bin/*'))
# Those whose tests read files outside of their module, or run programs that they do not
# import: Go's cache of results does not know of these.
UNCACHED_MODULES := deploy cmd/graphdraw cmd/tools
TOOL := go tool -modfile=$(CURDIR)/cmd/tools/go.mod

# Packages that were slow enough to have a budget, the longest first: they are tested first.
BUDGETS := testdata/test-budgets.txt
SLOW_PACKAGES = $(shell grep -v '^#' $(BUDGETS) | sort -k3 -rn | cut -d' ' -f1)
# Packages whose tests use a real API server or etcd.
CLUSTER_PACKAGES = $(call packages_with,/(clustertest|operatortest|kvstoretest)"$$) ./resources/clustertest
# Packages of them that run programs which they do not import; see UNCACHED_MODULES.
UNCACHED_PACKAGES = $(filter ./cmd/demo ./cmd/demo/%,$(PACKAGES))
PACKAGES = $(subst github.com/skep-operator/skep,.,$(shell go list ./...))
# Packages that have long forms of their tests.
SOAK_PACKAGES = $(sort $(CLUSTER_PACKAGES) $(call packages_with,SKEP_SOAK|seedtest\.(Seeds?|Soak)\())
# Tests in files that name RaceEnabled or Seeds: the race detector distorts them, or makes
# their histories slow, so that fewer of them run under it. So do tests that run benchmarks.
PLAIN := \bRaceEnabled\b|seedtest\.Seeds|benchtest\.Once
PLAIN_PACKAGES = $(call packages_with,$(PLAIN))
# Those of them that measure resident memory, to which a busy machine adds garbage: they run alone.
RESIDENT_PACKAGES := ./resources/stream
PLAIN_TESTS = $(shell grep -rlE --include='*_test.go' '$(PLAIN)' $(SOURCES) | xargs grep -ohE '^func Test[A-Z]\w*' | sed 's/^func //' | sort -u | paste -sd'|')

SOURCES := cells cmd/demo cmd/operator resources runtime docs
# $(call packages_with,regular expression) are the packages of the root module that have it in a test.
packages_with = $(shell grep -rlE --include='*_test.go' '$(1)' $(SOURCES) | xargs -n1 dirname | sort -u | sed 's,^,./,')

LICENSES := Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT

# $(call step,what is done) before the commands of a recipe, which are one shell; $(took)
# after them.
step = @step='$(1)'; printf '==> %s\n' "$$step";
took = ; echo "    $$SECONDS s"; printf '%5d s  %s\n' "$$SECONDS" "$$step" >>$(CURDIR)/bin/.times

# How often a test that failed runs again, alone; RERUNS=0 does without. Not after a data
# race, a panic or a time-out, and not when more than five have failed.
RERUNS ?= 2
FLAKY := $(CURDIR)/bin/flaky
rerun = $(if $(filter-out 0,$(RERUNS)),--rerun-fails=$(RERUNS) --rerun-fails-max-failures=5 \
	--rerun-fails-abort-on-data-race --rerun-fails-report=$(FLAKY)/$(1).txt)

# $(call go_test,name of the run,flags,packages) is go test, which keeps its events in bin/flaky
# under that name. The inner shell has no arguments at first; a rerun is told the test and its
# package, and takes nothing from Go's cache of results (--packages could not say so). What
# gotestsum forgives and should not is red by the last command. Some tests read the whole tree
# but bin/ and .git; Go keeps their results by the times of these folders, too, which therefore
# stay the same.
go_test = mkdir -p $(FLAKY); rm -f $(FLAKY)/$(1).json $(FLAKY)/$(1).txt; touch -ch -d @1000000000 $(CURDIR)/bin $(CURDIR)/.git; \
	$(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --no-color --hide-summary=skipped \
		--jsonfile $(FLAKY)/$(1).json $(rerun) --raw-command -- \
		bash -c 'if [ "$$1" ]; then set -- -count=1 "$$@"; else set -- $(3); fi; exec go test -json $(2) "$$@"' tests | \
	sed -u -E -e 's/^✓  /ok  \t/' -e 's/^✖  /FAIL\t/' -e 's/^((ok|FAIL)\s.*) \(([0-9.hm]+s)\)$$/\1\t\3/'; \
	$(build_flaky); $(CURDIR)/bin/.flaky -check $(FLAKY)/$(1).json

build_flaky = go build -C $(CURDIR)/cmd/tools -o $(CURDIR)/bin/.flaky ./flaky

$(shell mkdir -p bin)

##@ Run

.PHONY: run
run: build $(if $(CLOUD),cloudsim) ## Run the operator in a small real cluster and show what it does; ARGS='--flag=…' go to the operator; CLOUD=aws or azure for nodes in a simulated cloud
	@bin/demo -cloud '$(CLOUD)' -- $(ARGS)

.PHONY: build
build: ## Build the operators, and graphdraw and demo beside them, into bin/
	$(call step,Building $(BINARIES) graphdraw demo) \
	for name in $(BINARIES); do \
		go build $(PROGRAM) $(LDFLAGS) -o bin/$$name ./cmd/$$name; $(call no_templates,bin/$$name); \
	done; \
	go build $(LDFLAGS) -o bin/demo ./cmd/demo; \
	go build -C cmd/graphdraw -o $(CURDIR)/bin/graphdraw . $(took)

.PHONY: devcluster
devcluster: ## Build the control plane of tests; the first build compiles Kubernetes and takes minutes
	$(call step,Building the control plane; the first build compiles Kubernetes and takes 3 to 10 minutes) \
	go build $(LDFLAGS) -o bin/demo ./cmd/demo; bin/demo -build $(took)

.PHONY: cloudsim
cloudsim: ## Build the simulated clouds, which tests start, and make run with CLOUD
	$(call step,Building the simulated clouds) \
	go build -C cmd/cloudsim -o $(CURDIR)/bin/cloudsim . $(took)

##@ Ship

# What an image is made for, by Go's names.
PLATFORMS := linux-amd64 linux-arm64
IMAGE_LDFLAGS := -ldflags='-s -w -X main.version=$(VERSION)'

.PHONY: image
image: ## Build the container image for all platforms into bin/image/oci, and run it; needs no container engine
	$(call step,Building static operators for $(PLATFORMS); the first time takes minutes) \
	rm -rf bin/image; \
	for platform in $(PLATFORMS); do for name in $(BINARIES); do \
		CGO_ENABLED=0 GOOS=$${platform%-*} GOARCH=$${platform#*-} go build $(PROGRAM) -trimpath $(IMAGE_LDFLAGS) -o bin/image/programs/$$platform/$$name ./cmd/$$name; done; \
		CGO_ENABLED=0 GOOS=$${platform%-*} GOARCH=$${platform#*-} go build -C cmd/tools -trimpath -ldflags='-s -w' \
			-o $(CURDIR)/bin/image/tools/$$platform/gops github.com/google/gops; \
	done $(took)
	$(call step,Collecting licences) \
	{ $(TOOL) go-licenses save $(addprefix ./cmd/,$(BINARIES)) --save_path=bin/image/licenses && \
		go tool -C cmd/tools go-licenses save github.com/google/gops --save_path=$(CURDIR)/bin/image/licenses.tools; \
	} 2>bin/.licenses.log || { cat bin/.licenses.log; exit 1; }; \
	cp -R bin/image/licenses.tools/. LICENSE bin/image/licenses/ $(took)
	$(call step,Assembling bin/image/oci) \
	go run -C cmd/tools ./image -programs $(CURDIR)/bin/image/programs -tools $(CURDIR)/bin/image/tools -licenses $(CURDIR)/bin/image/licenses \
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

.PHONY: definitions
definitions: ## Compare our CustomResourceDefinitions with those of each release, path by path
	go test ./resources/api -run 'TestReference' -count=1 -v | grep -v '^=== '

.PHONY: test
test: ## Everything: this is what CI runs; up to 40 minutes the first time; RERUNS=0 runs no failed test again
	@$(MAKE) --no-print-directory tree-before build devcluster lint licenses
	@$(MAKE) --no-print-directory tests plain
	@$(MAKE) --no-print-directory -j3 --output-sync SIDE_BY_SIDE=1 uncached generated modules
	@$(MAKE) --no-print-directory tree-after times flaky
	@echo "==> All tests passed"

# go vet has run in lint. The file with the times is not in the repository: what a test opens
# there is part of what Go keeps its result by. Most tests wait for servers: three packages at a
# time leave two cores idle for a quarter of the time.
RACE := -race -vet=off -p 4 -timeout 40m
TIMES := $(or $(TMPDIR),/tmp)/skep-test-times-$(shell id -u)
tests uncached cluster: export SKEP_TEST_TIMES = $(TIMES)

.PHONY: tests
tests: devcluster cloudsim ## Tests of the root module under the race detector, those on the real control plane among them; but for uncached
	$(call step,Tests under the race detector and on the real control plane; the first time compiles for minutes) \
	$(call go_test,tests,$(RACE),$(SLOW_PACKAGES) $(filter-out $(SLOW_PACKAGES) $(UNCACHED_PACKAGES),$(PACKAGES))) $(took)

.PHONY: uncached
uncached: ## Tests of the root module whose results Go must not keep
	$(call step,Tests of $(UNCACHED_PACKAGES) under the race detector) \
	$(call go_test,uncached,$(RACE) -count=1,$(UNCACHED_PACKAGES)) $(took)

.PHONY: cluster
cluster: devcluster cloudsim ## The tests on the real control plane alone, under the race detector
	$(call step,Tests on the real control plane) \
	$(call go_test,cluster,$(RACE),$(filter $(CLUSTER_PACKAGES),$(SLOW_PACKAGES)) $(filter-out $(SLOW_PACKAGES),$(CLUSTER_PACKAGES))) $(took)

.PHONY: plain
plain: ## Tests of memory, allocations and long histories, without the race detector, and each benchmark once
	$(call step,Budgets and long histories; each benchmark once) \
	go list -test -deps -export $(RESIDENT_PACKAGES) >/dev/null; \
	go test -vet=off -p 1 -run '^($(PLAIN_TESTS))$$' $(RESIDENT_PACKAGES); \
	go test -vet=off -run '^($(PLAIN_TESTS))$$' $(filter-out $(RESIDENT_PACKAGES),$(PLAIN_PACKAGES)) $(took)

.PHONY: modules
modules: ## Tests of the other modules of the repository
	$(call step,Tests of other modules: $(MODULES)) \
	$(foreach dir,$(MODULES),echo '--- $(dir)'; cd $(CURDIR)/$(dir); \
		$(call go_test,modules-$(subst /,-,$(dir)),-vet=off$(if $(filter $(dir),$(UNCACHED_MODULES)), -count=1),./...);) \
	true $(took)

.PHONY: flaky
flaky: ## Which tests passed only when they ran again; more than three are red
	@rm -f bin/flaky/*.log; mkdir -p bin/flaky; $(build_flaky); bin/.flaky -max 3 bin/flaky

# Tests that depend on what the API server does; they run on the oldest one too.
OLDEST_PACKAGES := ./resources/stream ./resources/k8s ./cells/leader ./cells/crds ./cells/identity ./cells/endpointslice ./cells/ipam/clusterpool

.PHONY: oldest
oldest: ## Tests on the oldest supported API server; the first build compiles its Kubernetes
	$(call step,Building the control plane with the oldest Kubernetes; the first build takes 3 to 10 minutes) \
	if ! go list -C cmd/devcluster -modfile=oldest.mod -deps . >/dev/null 2>bin/.oldest.log; then \
		echo "NOT TRIED: the modules of the oldest Kubernetes cannot be loaded: $$(tail -1 bin/.oldest.log)"; exit; \
	fi; \
	go build -C cmd/devcluster -modfile=oldest.mod -ldflags='-s -w' -o $(CURDIR)/bin/devcluster-oldest . $(took); \
	SKEP_DEVCLUSTER=$(CURDIR)/bin/devcluster-oldest go test -vet=off -count 1 -p 1 $(OLDEST_PACKAGES) $(took)

.PHONY: flake
flake: devcluster ## Repeat a test beside two busy processes until it fails: PKG=./cells/leader RUN=TestX; TIMES=50 times at most
	$(call step,Repeating $(RUN) of $(PKG)) \
	[ -n '$(PKG)' ] || { echo "say which package: make flake PKG=./cells/leader RUN=TestX"; exit 1; }; \
	for busy in 1 2; do while :; do :; done & busies="$$busies $$!"; done; trap 'kill $$busies' EXIT; \
	go test -race -vet=off -timeout 0 -failfast -count $(or $(TIMES),50) -run '$(or $(RUN),.)' $(PKG) $(took)

.PHONY: defects
defects: devcluster ## Plant defects in the product, and see that tests notice each; ONLY=regexp restricts them
	$(call step,Planting defects) \
	SKEP_DEVCLUSTER=$(CURDIR)/bin/controlplane/devcluster go run -C cmd/tools ./defects -root $(CURDIR) -only '$(ONLY)' $(took)

.PHONY: soak
soak: devcluster oldest defects ## The long forms of tests, those on the control plane among them, in random order: SOAK=3 times
	$(call step,Soaking) SKEP_SOAK=1 go test -race -p 1 -count $(or $(SOAK),1) -shuffle on -timeout 0 $(SOAK_PACKAGES) $(took)
	$(call step,A hundred of the largest objects of each kind without the race detector) \
	SKEP_SOAK=1 go test -vet=off -count 1 -timeout 0 -v -run '^TestAHundredLargestObjects$$' ./cmd/operator $(took)

.PHONY: conformance
conformance: devcluster ## Run the conformance suite of the Gateway API, and write its report into docs/reference; GATEWAY=1.5 for that of 1.5; RUN=HTTPRouteCORS for one of its tests
	$(call step,Conformance to the Gateway API; the log is bin/conformance.log) \
	modfile=; report='$(CURDIR)/docs/reference/gateway-conformance.yaml'; \
	[ -z '$(GATEWAY)' ] || { modfile='-modfile=gateway-$(GATEWAY).mod -tags=gateway$(subst .,,$(GATEWAY))'; report='$(CURDIR)/docs/reference/gateway-conformance-$(GATEWAY).yaml'; }; \
	go build $(PROGRAM) $(LDFLAGS) -o bin/operator ./cmd/operator; \
	go build -C cmd/conformance $$modfile -o $(CURDIR)/bin/echo-basic sigs.k8s.io/gateway-api/conformance/echo-basic; \
	[ -z '$(RUN)' ] || report=$(CURDIR)/bin/conformance.yaml; status=0; \
	SKEP_CONFORMANCE=$(CURDIR)/bin SKEP_CONFORMANCE_RUN='$(RUN)' SKEP_CONFORMANCE_REPORT="$$report" GOFLAGS="$$modfile" \
		go test -C cmd/conformance -count=1 -vet=off -run '^TestGatewayAPI$$' -v -timeout 60m . >bin/conformance.log 2>&1 || status=$$?; \
	grep -aE '^ *--- FAIL|^(ok|FAIL)\s|^    --- PASS' bin/conformance.log || true; \
	[ ! -f "$$report" ] || chmod 644 "$$report"; [ $$status = 0 ] || exit $$status $(took)

.PHONY: bench
bench: ## Measure beside peers, against the budgets; ARGS='-run … -rounds …'
	@go run -C cmd/bench . $(ARGS)

.PHONY: bench-cluster
bench-cluster: build devcluster ## Measure whole operators on a loaded control plane: SIZE=S, M or L; ARGS='-rounds …'
	@go run -C cmd/bench ./cluster -size $(or $(SIZE),M) $(ARGS)

.PHONY: bench-kvstore
bench-kvstore: build devcluster ## Measure the duties of etcd beside etcd's own client; ARGS='-only … -services … -identities …'
	@go run -C cmd/bench ./kvstore $(ARGS)

.PHONY: bench-aws
bench-aws: devcluster ## Have many nodes join at once at an EC2 that throttles: NODES=1000; the bill by operation, and what is kept of EC2
	@SKEP_NODES=$(or $(NODES),1000) go test ./cells/ipam/aws -count=1 -run '^(TestScaleOut|TestGrowth|TestMemory)$$' -v -timeout 60m | grep -E '^ *(scale_test|---|ok|FAIL)'

##@ Check

.PHONY: check
check: lint licenses vulnerabilities generated ## All checks that run no tests

.PHONY: lint
lint: ## gofmt, go vet and staticcheck, in every module
	$(call step,gofmt) files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted: run gofmt -w" $$files; exit 1; } $(took)
	$(call step,go vet and staticcheck; the first time compiles them) \
	for dir in . $(MODULES); do echo "--- $$dir"; ( cd $$dir; go vet ./...; $(TOOL) staticcheck ./... ); done $(took)

.PHONY: licenses
licenses: ## What is linked into the operators, and into gops in the image, has a licence of the short list
	$(call step,Licences: $(LICENSES)) \
	$(TOOL) go-licenses check --allowed_licenses=$(LICENSES) $(addprefix ./cmd/,$(BINARIES)) 2>bin/.licenses.log || { cat bin/.licenses.log; exit 1; }; \
	go tool -C cmd/tools go-licenses check --allowed_licenses=$(LICENSES) github.com/google/gops 2>bin/.licenses.log || { cat bin/.licenses.log; exit 1; } $(took)

.PHONY: vulnerabilities
vulnerabilities: ## Known vulnerabilities in code that the operators reach; asks vuln.go.dev
	$(call step,govulncheck) \
	if ! $(TOOL) govulncheck $(addprefix ./cmd/,$(BINARIES)) >bin/.vulnerabilities.log 2>&1; then \
		cat bin/.vulnerabilities.log; \
		grep -qE 'no such host|dial tcp|connection refused|timeout' bin/.vulnerabilities.log || exit 1; \
		echo "NOT CHECKED: the database of vulnerabilities cannot be reached; GOVULNDB=URL names another"; \
	fi $(took)

.PHONY: generated
generated: build ## What is generated is up to date; looks at a copy, and leaves the tree as it is
	$(call step,Generating in a copy of the tree and comparing) \
	copies=$(CURDIR)/bin/.generated; trap 'rm -rf "$$copies"' EXIT; rm -rf "$$copies"; mkdir -p "$$copies/after"; \
	tar -cf - --exclude=./.git --exclude=./bin . | tar -xf - -C "$$copies/after"; \
	cp -R "$$copies/after" "$$copies/before"; \
	$(MAKE) --no-print-directory -C "$$copies/after" generate BUILT=$(CURDIR)/bin >bin/.generate.log 2>&1 || { cat bin/.generate.log; exit 1; }; \
	diff -rq --exclude=bin "$$copies/before" "$$copies/after" || { echo "out of date: run make generate"; exit 1; } $(took)

.PHONY: tree-before tree-after
tree-before:
	@rm -rf bin/.times bin/flaky $(TIMES); git status --porcelain >bin/.tree 2>/dev/null || true
tree-after:
	$(call step,The tests left the tree as it was) \
	git status --porcelain 2>/dev/null | diff bin/.tree - || { echo "the tests have changed these files"; exit 1; }

.PHONY: times
times: ## What the last tests took, by step and by package, against the budgets
	@cat bin/.times; .ci/budgets $(BUDGETS) $(TIMES)

##@ Change

# Where the operator and graphdraw are that print what is generated, if they are built already.
BUILT ?=

.PHONY: generate
generate: ## Write what is generated: deep copies, definitions, tables and pictures of the documents
	$(call step,Generating) $(if $(BUILT),,go build $(PROGRAM) $(LDFLAGS) -o bin/operator ./cmd/operator; go build -C cmd/graphdraw -o $(CURDIR)/bin/graphdraw .;) \
	go generate ./... ./testdata/benchcells; operator=$(or $(BUILT),bin)/operator; \
	{ echo '# Written by make generate: this is what `operator rbac` prints. Do not edit.'; $$operator rbac; } >deploy/manifests/clusterrole.yaml; \
	{ printf '%s\n' '# Written by make generate from rules.yaml. Do not edit.' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
		'metadata:' '  name: cilium-operator' '  namespace: kube-system' 'spec:'; sed 's/^./  &/' deploy/monitoring/rules.yaml; } >deploy/monitoring/prometheusrule.yaml; \
	$$operator graph -o svg >docs/pictures/graph.svg $(took)

.PHONY: new-duty
new-duty: ## Lay out the folder of a new duty: KIND=reconcile, sweep or mirror, NAME=lbipam
	go run ./cmd/newduty -kind '$(KIND)' -name '$(NAME)'

.PHONY: clean
clean: ## Remove bin/; Go's own cache stays
	rm -rf bin

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
