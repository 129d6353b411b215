// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Status is how etcd fares, as of the last check.
type Status struct {
	Endpoints  []EndpointStatus
	Leases     int // general ones that are alive
	LockLeases int
	LeasesLost int // in this term
	// Quorum is whether the last check found etcd taking writes, and
	// QuorumErrors how many checks in a row did not.
	Quorum       bool
	QuorumErrors int
	// Err is nil while etcd can be relied upon.
	Err error
}

// EndpointStatus is what one member says.
type EndpointStatus struct {
	URL     string
	Version string
	Leader  bool
	Err     error // it does not answer
}

// Connected is how many endpoints answer.
func (s Status) Connected() int {
	n := 0
	for _, e := range s.Endpoints {
		if e.Err == nil {
			n++
		}
	}
	return n
}

// String is the status in one line.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "etcd: %d/%d connected, leases=%d, lock leases=%d, has-quorum=%t",
		s.Connected(), len(s.Endpoints), s.Leases, s.LockLeases, s.Quorum)
	for i, e := range s.Endpoints {
		b.WriteString(map[bool]string{true: ": ", false: "; "}[i == 0])
		b.WriteString(e.String())
	}
	return b.String()
}

func (e EndpointStatus) String() string {
	if e.Err != nil {
		return fmt.Sprintf("%s - %v", e.URL, e.Err)
	}
	text := e.URL + " - " + e.Version
	if e.Leader {
		text += " (Leader)"
	}
	return text
}

// judge is what one check comes to, after the one before.
func judge(before Status, endpoints []EndpointStatus, quorum error, tolerated int) Status {
	s := Status{Endpoints: endpoints, Quorum: quorum == nil, QuorumErrors: before.QuorumErrors + 1}
	if quorum == nil {
		s.QuorumErrors = 0
	}
	switch {
	case s.QuorumErrors > tolerated:
		s.Err = fmt.Errorf("%d quorum checks in a row failed: %w", s.QuorumErrors, quorum)
	case s.Connected() == 0:
		s.Err = errors.New("no endpoint of etcd answers")
		for _, e := range endpoints {
			s.Err = fmt.Errorf("%w; %s: %w", s.Err, e.URL, e.Err)
		}
	}
	return s
}

// heartbeatError is the quorum error of a heartbeat that is too old.
type heartbeatError struct{ age time.Duration }

func (e *heartbeatError) Error() string {
	return fmt.Sprintf("%s since last heartbeat update has been received", e.age.Round(time.Second))
}

// reason is the label of a quorum error.
func reason(err error) string {
	if _, ok := errors.AsType[*heartbeatError](err); ok {
		return "no event received"
	}
	return "lock timeout"
}
