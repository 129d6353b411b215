// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"time"
)

// Election tells who leads. The cell that holds the lease provides it.
type Election interface {
	// Status is the state as this replica sees it.
	Status() ElectionStatus
}

// ElectionStatus is who leads, as one replica sees it.
type ElectionStatus struct {
	Lease       string    `json:"lease"`            // namespace/name
	Identity    string    `json:"identity"`         // of this replica
	Holder      string    `json:"holder,omitempty"` // of the leader, "" while unknown
	Leading     bool      `json:"leading"`          // whether this replica leads
	Since       time.Time `json:"since,omitzero"`   // since when the holder leads
	Transitions int       `json:"transitions"`
}

// HealthCheck is asked by the health endpoint of the contract, in group
// "health checks". A duty provides one where the contract has it.
type HealthCheck struct {
	Name  string
	Check func(context.Context) error
}
