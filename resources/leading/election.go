// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import "time"

// Election reports which replica leads. The cell that holds the lease provides it.
type Election interface {
	// Status is the state as this replica sees it.
	Status() ElectionStatus
}

// ElectionStatus is the state of the leader election as one replica sees it.
type ElectionStatus struct {
	Lease       string    `json:"lease"`            // namespace/name
	Identity    string    `json:"identity"`         // of this replica
	Holder      string    `json:"holder,omitempty"` // of the leader, "" while unknown
	Leading     bool      `json:"leading"`          // whether this replica leads
	Since       time.Time `json:"since,omitzero"`   // since when the holder leads
	Transitions int       `json:"transitions"`
}
