// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package control

import (
	"encoding/json"
	"time"
)

// Admission is a webhook of the API server, and what it does to the requests that match.
// It says exactly one of Reject, Hang and a rewrite: Patch, Drop and Set, of which there
// may be several.
//
// Reject and Hang are validating webhooks, rewrites are mutating ones.
type Admission struct {
	// ID is chosen by the devcluster if empty. It is part of host names.
	ID    string         `json:"id,omitempty"`
	Match AdmissionMatch `json:"match"`

	// Skip, Every, Times and Probability are as in a Rule; Seed is that of Probability,
	// 0 means 1.
	Skip        int     `json:"skip,omitempty"`
	Every       int     `json:"every,omitempty"`
	Times       int     `json:"times,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	Reject *Reject `json:"reject,omitempty"`
	Hang   *Hang   `json:"hang,omitempty"`
	// Patch is a JSON patch, which must fit the object.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Drop are JSON pointers to what is removed, where it is there.
	Drop []string `json:"drop,omitempty"`
	// Set are values by JSON pointer; parents that are missing are added.
	Set map[string]any `json:"set,omitempty"`

	// Hits counts how often the webhook did it. Set by the devcluster.
	Hits int `json:"hits,omitempty"`
}

// AdmissionMatch selects requests. Lists match any of their elements; an empty list
// matches everything. Configurations of webhooks themselves never match.
type AdmissionMatch struct {
	// Operations are CREATE, UPDATE (patches, too), DELETE and CONNECT.
	Operations []string `json:"operations,omitempty"`
	// Resources are "resource", "resource/subresource" or "*/subresource"; a plain
	// resource matches without its subresources.
	Resources []string `json:"resources,omitempty"`
	// Groups are API groups; the core group is "core".
	Groups     []string `json:"groups,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// Users are names of those who ask.
	Users []string `json:"users,omitempty"`
}

// Reject denies a request.
type Reject struct {
	// Codes are HTTP status codes from 400 to 599, used in turn; none means 403.
	Codes   []int  `json:"codes,omitempty"`
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Hang does not answer the API server for a while, and then allows the request.
type Hang struct {
	// For is the time; For < 0 hangs until the webhook is removed.
	For time.Duration `json:"for"`
	// Patience is how long the API server waits, in whole seconds from 1 to 30; 0 means 1.
	Patience time.Duration `json:"patience,omitempty"`
	// FailOpen makes the API server go on without the webhook then; otherwise the request
	// fails.
	FailOpen bool `json:"failOpen,omitempty"`
}
