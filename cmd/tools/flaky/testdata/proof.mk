# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of Skep

# What the Makefile does to run tests, for packages that fail in a known way.
include Makefile

.PHONY: proof
proof:
	@cd cmd/tools; $(call go_test,proof,$(FLAGS),$(PACKAGES))
