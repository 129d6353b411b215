// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Status is the state of etcd as of the last check.
type Status struct {
	Endpoints  []EndpointStatus
	Leases     int // general leases, alive
	LockLeases int
	LeasesLost int // in this term
	// Quorum reports whether etcd accepted a write at the last check;
	// QuorumErrors counts consecutive failed checks.
	Quorum       bool
	QuorumErrors int
	// Err is nil while etcd is healthy.
	Err error
}

// EndpointStatus is the state of one member.
type EndpointStatus struct {
	URL     string
	Version string
	Leader  bool
	Err     error // of the last status request
}

// Connected returns the number of endpoints that answer.
func (s Status) Connected() int {
	n := 0
	for _, e := range s.Endpoints {
		if e.Err == nil {
			n++
		}
	}
	return n
}

// String returns the status in one line.
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

// evaluate returns the status after a check, given the previous one.
func evaluate(before Status, endpoints []EndpointStatus, quorum error, tolerated int) Status {
	s := Status{Endpoints: endpoints, Quorum: quorum == nil, QuorumErrors: before.QuorumErrors + 1}
	if quorum == nil {
		s.QuorumErrors = 0
	}
	switch {
	case s.QuorumErrors > tolerated:
		s.Err = fmt.Errorf("%d quorum checks in a row failed: %w", s.QuorumErrors, quorum)
	case s.Connected() == 0:
		s.Err = errors.New("no etcd endpoint answers")
		for _, e := range endpoints {
			s.Err = fmt.Errorf("%w; %s: %w", s.Err, e.URL, e.Err)
		}
	}
	return s
}

// heartbeatError is the quorum error of an outdated heartbeat.
type heartbeatError struct{ age time.Duration }

func (e *heartbeatError) Error() string {
	return fmt.Sprintf("%s since last heartbeat update has been received", e.age.Round(time.Second))
}

// quorumErrorLabel returns the metric label of a quorum error.
func quorumErrorLabel(err error) string {
	if _, ok := errors.AsType[*heartbeatError](err); ok {
		return "no event received"
	}
	return "lock timeout"
}
