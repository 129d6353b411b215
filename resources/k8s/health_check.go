// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import "context"

// HealthCheck is a check of the health endpoint, in group "health checks". A duty
// provides one where the contract has it.
type HealthCheck struct {
	Name  string
	Check func(context.Context) error
}
