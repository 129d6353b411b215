// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package validation sets the condition Valid of network policies.
//
// docs/wire/policy.validation.md has the rules. The rules of a policy are checked as it is decoded, by
// resources/domain/policy; plan.go compares the condition with the result, and controller.go patches it.
package validation
