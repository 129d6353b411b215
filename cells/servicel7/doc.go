// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package servicel7 writes CiliumEnvoyConfigs for Services whose requests Envoy balances.
//
// docs/wire/servicel7.md has the rules. plan.go decides which Services these are, and how; resources/domain/envoy translates;
// controller.go watches and writes.
package servicel7
